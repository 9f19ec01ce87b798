# The driver of bash sessions. Started as
#
#	bash .session.sh CELL
#
# CELL is a file whose only line evaluates the text of a cell. Lines of a cell are thus
# counted from 1, and messages show that file's name. It is sourced at the top level and
# not in a function, so that "declare" makes variables that stay.
#
# There are two processes. A shell that waits for a program handles a signal only after
# the program has ended. The first process therefore only waits for SIGINT and sends it
# to the second process, the session's shell, and to each process that this has started.
# Background jobs ignore SIGINT, except programs that set a handler, such as Node.js.
# Processes that are left from earlier cells must not be interrupted. The second process
# writes their pids as a line into a pipe of the first (its descriptor 7), which skips
# them.
#
# Frames are written to descriptor 3. Cells are read from descriptor 4 as lines, escaped
# for printf's %b: id, code, standard input, number of variables, and a name and a value
# for each. After an interrupt of the last cell, the id has an exclamation mark. The loop
# runs with both descriptors closed. Bash keeps copies for itself that programs do not
# inherit, and the driver uses those. Subshells have them, too.
#
# "exit", an interrupt, and a failure under "set -e" end the cell but not the shell: a
# DEBUG trap that returns 2 makes every function and sourced file return, up to the loop.
# Some exits cannot be stopped in this way ("builtin exit", an unset variable under
# "set -u"). They reach the EXIT trap, and a copy of the shell goes on from there. The
# copy has the variables, but cannot wait for the background jobs. After sixteen copies
# the session ends. A cell's own trap on ERR or INT lasts until the cell ends. A cell's
# own trap on EXIT stays and replaces the one of the driver.
if [[ ${1-} != again ]]; then
  if [[ ${2-} != loop ]]; then
    __below() {
      local kids= more= pid
      read -r kids <"/proc/$1/task/$1/children"
      kill -INT "$1" # before its children: a shell that gets the signal later would go on and start more
      read -r more <"/proc/$1/task/$1/children"
      for pid in $more; do
        [[ " $kids " == *" $pid "* ]] || kids+=" $pid"
      done
      for pid in $kids; do
        [[ $__kept == *" $pid "* ]] || __below "$pid"
      done
    }
    __interrupt() {
      while read -r -t 0 -u 7 && IFS= read -r -u 7 __kept; do :; done
      __below "$__main"
    }
    exec 7<> <(:)
    __kept=
    set -m
    "$BASH" --norc --noprofile "$0" "$1" loop 7>&- &
    __main=$!
    trap __interrupt INT
    exec </dev/null >/dev/null 2>&1 3>&- 4<&-
    wait "$__main"
    __status=$?
    while kill -0 "$__main"; do
      wait "$__main"
      __status=$?
    done
    exit "$__status"
  fi
  trap '' INT
  __driver=$0 __file=$1 __again=0 __flags= __busy= __job=
  # Copies are made from 10 on, in the order of the loop's redirections.
  exec 10>&- 11>&- 12>&- 13>&-
  __channel=10 __cells=11 __out=12 __err=13
  __first=/proc/$PPID/fd/7 __before= __there=
  BASH_ARGV0=$1
  set --
fi

__base() { __depth=${#FUNCNAME[@]}; }

# __arm ends the cell with status $1. It must be the last command of its caller.
__arm() {
  __code=$1 __traced=${-//[^T]/}
  builtin shopt -s extdebug
  builtin set -T
  builtin trap __unwind DEBUG
}

__unwind() {
  ((${#FUNCNAME[@]} > __depth)) && return 2
  builtin trap - DEBUG
  builtin shopt -u extdebug
  builtin set +T -E ${__traced:+-T}
}

exit() {
  builtin local code=${1-$?}
  if [[ ! $__busy || $BASHPID != "$__pid" || $# -gt 1 ]]; then
    builtin exit "$@"
  fi
  if [[ ! $code =~ ^(0|[1-9][0-9]{0,2})$ ]]; then
    (builtin exit "$code") 2>/dev/null
    code=$?
    [[ $1 =~ ^[-+]?[0-9]+$ ]] || builtin printf '%s: line %s: exit: %s: numeric argument required\n' "$__file" "${BASH_LINENO[0]}" "$1" >&2
  fi
  __arm $((code & 255))
}

__failed() {
  builtin local code=$?
  if [[ $- == *e* && $BASHPID == "$__pid" ]]; then
    builtin set +e
    __stops=e
    __arm "$code"
  fi
}

__interrupted() {
  [[ $BASHPID == "$__pid" ]] || builtin exit 130
  [[ ! $__code ]] || builtin return 0 # the cell is ending already
  [[ $- != *e* ]] || __stops=e
  builtin set +e
  __arm 130
}

# __send writes a frame of at most 255 bytes.
__send() {
  builtin local size
  builtin printf -v size '\\x%02x' "${#1}"
  builtin printf "\\0\\0\\0$size%s" "$1" >&"$__channel"
}

__line() { IFS= builtin read -r -u "$__cells" "$1"; }

__field() { __line "$1" && builtin printf -v "$1" %b "${!1}"; }

# __quiet waits up to a second until the first process has sent on every SIGINT that it has
# got. Until then it runs, and does not sleep.
__quiet() {
  builtin local IFS=$' \t\n' name value state tries=0
  while ((tries++ < 100)); do
    while builtin read -r name value; do
      case $name in
      State:) state=${value:0:1} ;;
      SigPnd: | ShdPnd:) ((16#0${value: -1} & 2)) && state= ;;
      esac
    done <"/proc/$PPID/status"
    [[ $state != S ]] || builtin return 0
    builtin command -p sleep 0.01
  done
} 2>/dev/null

# __next reads a cell and starts it. It fails at end of file on the channel.
__next() {
  __line __id && __field __code && __line __input && __line __count || return
  [[ $__id != *! ]] || __quiet
  __id=${__id%!}
  __text=${__flags:+builtin set -$__flags; }$__code
  __names=() __olds=()
  while ((__count-- > 0)); do
    __line __name && __field __value || return
    __names+=("$__name")
    __olds+=("${!__name+${!__name@a}=${!__name}}")
    builtin export "$__name=$__value"
  done
  __send "{\"type\":\"start\",\"id\":$__id}"
  __code= __stops= __busy=1
  builtin set -E
  builtin trap __failed ERR
  builtin trap __interrupted INT
}

# __settle waits up to a second until new background jobs ignore SIGINT. Until a job
# executes its program, it is a copy of this shell and may not ignore it yet.
__settle() {
  builtin local kids pid name value tries=0
  __job=$!
  builtin read -r -a kids <"/proc/$__pid/task/$__pid/children"
  for pid in "${kids[@]}"; do
    while ((tries < 100)); do
      [[ /proc/$pid/exe -ef /proc/$__pid/exe ]] || builtin continue 2
      while builtin read -r name value && [[ $name != SigIgn: ]]; do :; done <"/proc/$pid/status"
      ((16#0${value: -1} & 2)) && builtin continue 2
      builtin command -p sleep 0.01
      ((tries++))
    done
  done
} 2>/dev/null

# __remain tells the first process which children outlive the cell.
__remain() {
  builtin local kids= line
  IFS= builtin read -r kids <"/proc/$__pid/task/$__pid/children"
  [[ $__before$kids != "$__there" ]] || builtin return 0
  __there=$__before$kids
  while builtin read -r -t 0 <"$__first" && IFS= builtin read -r line <"$__first"; do :; done
  builtin printf ' %s \n' "${__there:0:30000}" >"$__first"
} 2>/dev/null

# __after ends the cell and reports its status. It reads __status and __options.
__after() {
  builtin trap '' INT
  builtin trap - ERR
  [[ $! == "$__job" || $__options == *m* ]] || __settle
  __remain
  __busy= __flags=${__options//[!euxva]/}
  [[ $__flags == *e* ]] || __flags+=$__stops
  for __count in "${!__names[@]}"; do
    __name=${__names[__count]} __value=${__olds[__count]}
    if [[ ! $__value ]]; then
      builtin unset -v "$__name"
      continue
    fi
    builtin printf -v "$__name" %s "${__value#*=}"
    [[ ${__value%%=*} == *x* ]] || builtin export -n "${__name?}"
  done
  __code=${__code:-$__status}
  if ((__code == 0)); then __ok=true; else __ok=false; fi
  __send "{\"type\":\"done\",\"id\":$__id,\"ok\":$__ok,\"exit\":$__code}"
}

# The copy inherits the children of the shell, but cannot wait for them: record their pids.
if [[ ${1-} == again ]]; then
  IFS= builtin read -r __text <"/proc/$__pid/task/$__pid/children"
  __before+=" ${__text/$BASHPID /} "
fi 2>/dev/null
__pid=$BASHPID
__base
builtin trap '{ __status=$? __options=$-; builtin set +euxva; builtin trap "" INT; } 2>/dev/null
if [[ $__busy ]] && ((__again++ < 16)); then (builtin . "$__driver" again); fi' EXIT
if [[ ${1-} == again ]]; then
  # An exit may undo the redirections of the loop that it left.
  if { : >&3 <&4 >&5 >&6; } 2>/dev/null; then
    builtin exec >&5 2>&6
  else
    builtin exec >&"$__out" 2>&"$__err"
  fi
else
  builtin exec 5>&1 6>&2
fi
{
  if [[ ${1-} != again ]]; then
    __send '{"type":"ready"}'
  else
    builtin set --
    __after
  fi
  while __next; do
    if [[ $__input ]]; then
      builtin :
      builtin . "$__file" < <(builtin printf %b "$__input")
    else
      builtin :
      builtin . "$__file" </dev/null
    fi
    { __status=$? __options=$-; builtin set +euxva; } 2>/dev/null
    __after
  done
} 3>&- 4<&- 5>&- 6>&-
