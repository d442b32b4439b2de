"""Ranks: processes of one program that meet in collectives; what moves their bytes, and who starts them."""
