# Runs cells with an sh other than bash, each in a new shell; only files are kept. Cells
# have the format that session_shell.sh describes. An interrupt ends the cell's shell,
# but not the program that the shell waits for.
tell() {
  size=$(printf %03o "${#1}")
  printf "\\000\\000\\000\\$size%s" "$1" >&3
}

field() { IFS= read -r "$1" <&4; }

tell '{"type":"ready"}'
cell=$1
trap '' INT
while field id && field code && field input && field count; do
  id=${id%!}
  set --
  while [ "$count" -gt 0 ] && field name && field value; do
    value=$(printf '%b_' "$value")
    set -- "$@" "$name=${value%_}"
    count=$((count - 1))
  done
  tell "{\"type\":\"start\",\"id\":$id}"
  printf %b "$input" | (
    trap - INT
    exec 3>&- 4<&-
    [ $# -eq 0 ] || export "$@"
    set --
    __text=$(printf '%b_' "$code")
    __text=${__text%_}
    . "$cell"
  ) &
  child=$!
  trap 'kill "$child"' INT
  wait "$child"
  status=$?
  while kill -0 "$child" 2>/dev/null; do
    wait "$child"
    status=$?
  done
  trap '' INT
  ok=false
  [ "$status" -ne 0 ] || ok=true
  tell "{\"type\":\"done\",\"id\":$id,\"ok\":$ok,\"exit\":$status}"
done
