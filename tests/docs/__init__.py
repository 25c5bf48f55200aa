"""The documentation: what is written from the code, what every block of it does, and what it may name."""
