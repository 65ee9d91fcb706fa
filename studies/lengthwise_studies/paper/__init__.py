"""The tables of the paper and of its rebuttal: one file each, on one form (`paper_table.py`).

Numbers of tables are those of the submitted text. The printed version renumbers four: its tables 4, 5, 6 and 7 are
tables 6, 7, 4 and 5 here.
"""
