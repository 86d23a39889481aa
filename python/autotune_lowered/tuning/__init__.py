"""The program is run on a module, and its result read. (A room `tune` would hide the function of that name.)"""
