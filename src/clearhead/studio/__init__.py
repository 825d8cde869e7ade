"""The studio: a local web page that asks models questions, shows training runs, and reaches nothing it need not."""
