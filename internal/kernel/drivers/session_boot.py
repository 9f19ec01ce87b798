# The only code of __main__ in a session that is not the user's. It starts the driver,
# and leaves no name there. In an interpreter that was forked the driver is there already.
def boot():
    main = globals()
    again = main.pop("again", None)
    if again:
        names = again()
    else:
        import sys
        "@session_names.py@"
        names["prepare"](sys.argv[1:])
    del main["boot"]
    names["begin"]()
    names["serve"]()


boot()
