# The only driver code that runs in a session's __main__. It starts the driver and leaves
# no name behind. In a fork of a zygote the driver is loaded already.
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
