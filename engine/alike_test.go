package engine_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// mirrors are programs that print all that the kernel shows of their interpreter,
// read by it and not by a child.
var mirrors = map[sandboxmcp.Language]string{
	sandboxmcp.Python: `
import os
for n in 'status', 'limits', 'cgroup', 'oom_score_adj', 'setgroups', 'uid_map', 'gid_map', 'mountinfo', 'timerslack_ns', 'personality':
    try: print(*(n + ' ' + l for l in open('/proc/self/' + n).read().splitlines()), sep='\n')
    except OSError as e: print(n, 'refused')
for n in sorted(os.listdir('/proc/self/ns')): print('ns', os.readlink('/proc/self/ns/' + n))
for n in '0', '1', '2', '3', '4', '5': print('fd', n, os.readlink('/proc/self/fd/' + n) if os.path.lexists('/proc/self/fd/' + n) else 'none')
for f in '/etc/new', '/run/program/new', '/usr/bin/new', '/proc/sys/kernel/hostname', '/proc/self/oom_score_adj', '/dev/new', '/tmp/new', '/dev/shm/new', '/root/new':
    try: open(f, 'w').close(); print('write', f, 'done')
    except OSError as e: print('write', f, e.strerror)
try: open('/proc/1/mem', 'rb').close(); print('init open')
except OSError as e: print('init', e.strerror)
`,
	sandboxmcp.Node: `
const fs = require('fs');
for (const n of ['status', 'limits', 'cgroup', 'oom_score_adj', 'setgroups', 'uid_map', 'gid_map', 'mountinfo', 'timerslack_ns', 'personality']) {
  try { for (const l of fs.readFileSync('/proc/self/' + n, 'utf8').trimEnd().split('\n')) console.log(n + ' ' + l); }
  catch (e) { console.log(n, 'refused'); }
}
for (const n of fs.readdirSync('/proc/self/ns').sort()) console.log('ns', fs.readlinkSync('/proc/self/ns/' + n));
for (const n of '012') { let l = 'none'; try { l = fs.readlinkSync('/proc/self/fd/' + n) } catch (e) {} console.log('fd', n, l) }
for (const f of ['/etc/new', '/run/program/new', '/usr/bin/new', '/proc/sys/kernel/hostname', '/proc/self/oom_score_adj', '/dev/new', '/tmp/new', '/dev/shm/new', '/root/new']) {
  try { fs.closeSync(fs.openSync(f, 'w')); console.log('write', f, 'done') } catch (e) { console.log('write', f, e.code) }
}
try { fs.closeSync(fs.openSync('/proc/1/mem')); console.log('init open') } catch (e) { console.log('init', e.code) }
`,
	sandboxmcp.Shell: `
for n in status limits cgroup oom_score_adj setgroups uid_map gid_map mountinfo timerslack_ns personality; do
  { while read -r l; do echo "$n $l"; done </proc/$BASHPID/$n; } 2>/dev/null || echo "$n refused"
done
me=$BASHPID
for n in $(ls /proc/$me/ns); do echo "ns $(readlink /proc/$me/ns/$n)"; done
for n in 0 1 2 3 4 5; do echo "fd $n $(readlink /proc/$me/fd/$n || echo none)"; done
for f in /etc/new /run/program/new /usr/bin/new /proc/sys/kernel/hostname /proc/self/oom_score_adj /dev/new /tmp/new /dev/shm/new /root/new; do
  { : >$f && echo "write $f done"; } 2>/dev/null || echo "write $f refused"
done
{ : </proc/1/mem && echo 'init open'; } 2>/dev/null || echo 'init refused'
`,
}

// unlike is what differs from one start to the next.
var (
	unlike  = regexp.MustCompile(`^status (Pid|Tgid|PPid|NS\w+|Ngid|Vm\w+|Rss\w+|\w*ctxt_switches|Cpus_allowed\w*|Hugetlb\w+):`)
	numbers = regexp.MustCompile(`\[\d+\]|uid=\d+|gid=\d+|^mountinfo \d+ \d+ \d+:\d+|mount\w+:\d+|master:\d+`)
	owners  = regexp.MustCompile(`^([ug]id_map\s+\d+\s+)\d+`)
	spaces  = regexp.MustCompile(`\s+`)
)

// looked is what a mirror printed, but for that, and for the lines that without matches.
func looked(t *testing.T, res sandboxmcp.Result, without *regexp.Regexp) []string {
	t.Helper()
	all := strings.Split(strings.TrimSpace(res.Stdout), "\n")
	if !slices.ContainsFunc(all, func(l string) bool { return spaces.ReplaceAllString(l, " ") == "status NoNewPrivs: 1" }) || !slices.ContainsFunc(all, func(l string) bool { return strings.HasPrefix(l, "init ") }) {
		t.Fatalf("got %s %.500s %.500s, want what the kernel says of the process", res.Status, res.Stdout, res.Stderr)
	}
	all = slices.DeleteFunc(all, func(l string) bool { return unlike.MatchString(l) || without != nil && without.MatchString(l) })
	for i, l := range all {
		all[i] = strings.TrimSpace(spaces.ReplaceAllString(numbers.ReplaceAllString(owners.ReplaceAllString(l, "${1}id"), ""), " "))
	}
	return all
}

// ofSession is what a session's interpreter has of its own: its channel, the
// signals that its driver takes, room for them in its table of descriptors,
// more time than one program, and if it was forked the filter of its zygote, too.
var ofSession = regexp.MustCompile(`^status (FDSize|Seccomp_filters|Sig(Blk|Ign|Cgt|Q)|Threads):|^fd |^limits Max cpu time`)

// TestWallsAreAlike: the kernel's view of an interpreter that was forked or
// started ahead, and of one that keeps a session, is that of an executed one.
func TestWallsAreAlike(t *testing.T) {
	for l, mirror := range mirrors {
		t.Run(string(l), func(t *testing.T) {
			var b backend.Backend
			e := openReal(t, func(c *engine.Config) { b = c.Backends[0] })
			needs(t, e, l)
			r := sandboxmcp.Request{Code: mirror, Language: l, Display: sandboxmcp.DisplayStdout}
			executed := execute(t, e, r) // the first of an engine, for which nothing is ready
			t.Run("Ready", func(t *testing.T) {
				if !warm(t, e, b, l) {
					t.Fatal("got nothing ready within 20 s, want an interpreter to compare with")
				}
				var room *regexp.Regexp
				if l == sandboxmcp.Python {
					room = regexp.MustCompile(`^status (FDSize|Seccomp_filters):`) // a fork has the filter of its zygote, too
				}
				if diff := cmp.Diff(looked(t, executed, room), looked(t, execute(t, e, r), room)); diff != "" {
					t.Errorf("one that was ready is another (-executed +ready):\n%s", diff)
				}
			})
			t.Run("Session", func(t *testing.T) {
				r.SessionID = create(t, e, sandboxmcp.SessionSpec{Language: l})
				got := execute(t, e, r)
				if diff := cmp.Diff(looked(t, executed, ofSession), looked(t, got, ofSession)); diff != "" {
					t.Errorf("one of a session is another (-executed +session):\n%s", diff)
				}
				if diff := cmp.Diff(executed.Isolation, got.Isolation); diff != "" {
					t.Errorf("what results say of the walls (-executed +session):\n%s", diff)
				}
			})
		})
	}
}
