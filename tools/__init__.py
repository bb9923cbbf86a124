"""Makefile targets that take more than one line of shell."""
