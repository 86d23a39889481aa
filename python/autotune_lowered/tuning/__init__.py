"""Runs the program on a module, and reads its result. (A package `tune` would hide the function of that name.)"""
