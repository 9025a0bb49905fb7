"""Models in folders and on the Hub: three files, none of which can run code."""
