"""From a finding to a picture. So far: the terminal."""
