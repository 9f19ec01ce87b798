# Read by a bash that was started before it was asked for, in the place where one
# reads the file of $BASH_ENV, before it opens its script. It waits for the word on
# descriptor 4, which is an empty line after variables, one a line, that mean nothing
# to bash, and leaves the shell as if it had not been read.
while read -r -u 4 || exit 0; [ -n "$REPLY" ]; do export "$REPLY"; done
exec 3>&- 4<&-
unset BASH_ENV REPLY
SECONDS=0
: "$BASH"
