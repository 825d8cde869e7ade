"""From a finding to a picture: in the terminal, in a notebook, on a page."""
