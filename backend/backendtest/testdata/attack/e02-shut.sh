# id: E02
# tries: to keep its own files from being collected
# kind: a Go test runs it
mkdir dir && echo kept > dir/inner && echo kept > plain && chmod 0 dir "$WORK" && echo done
