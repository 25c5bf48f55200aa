"""Each promise broken on purpose: the line that keeps it is changed, and a test has to fail."""
