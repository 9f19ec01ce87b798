# A bash that was started ahead of a request reads this as the file of $BASH_ENV, before
# it opens its script. It waits on descriptor 4 for variables, one per line, and an empty
# line, which starts the program. None of the variables has a meaning to bash. At the end
# it restores the shell to the state before it.
while read -r -u 4 || exit 0; [ -n "$REPLY" ]; do export "$REPLY"; done
exec 3>&- 4<&-
unset BASH_ENV REPLY
SECONDS=0
: "$BASH"
