"""Profiles of jitted functions, and the page that is made of one."""
