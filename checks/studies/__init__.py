"""Every study at its smallest scale: does it end, with a page and with every difference that a claim needs?"""
