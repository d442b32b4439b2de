"""Ranks: processes of one program that communicate by collectives; what moves their bytes, and who starts them."""
