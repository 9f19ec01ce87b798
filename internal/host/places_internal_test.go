package host

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestPlacesAreKnownByWhatTheyAre: a file system that ignores case shows a place at other paths. Here a link stands for one.
func TestPlacesAreKnownByWhatTheyAre(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	place, other, beside := filepath.Join(root, "place"), filepath.Join(root, "PLACE"), filepath.Join(root, "beside")
	for _, dir := range []string{place, beside} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(place, other); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	closed := []string{place, filepath.Join(root, "missing")}
	for path, want := range map[string]bool{
		place: true, filepath.Join(place, "new"): true, other: true, filepath.Join(other, "new", "deeper"): true, root: false, filepath.Join(beside, "new"): false,
	} {
		if got := newPlaces(closed).holdFile(path); got != want {
			t.Errorf("%s is held: got %v, want %v", path, got, want)
		}
		if _, err := locate(path, []tree{newTree(root)}, closed); (err != nil) != want {
			t.Errorf("use %s: got %v, want an error: %v", path, err, want)
		}
		p, err := locate(path, []tree{newTree(root)}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.writable(path, state{started: func() places { return newPlaces(closed) }}); (err != nil) != want {
			t.Errorf("write %s: got %v, want an error: %v", path, err, want)
		}
	}
}

// TestLinksOfUsersTakeNoTime: each user of the machine can make links in a home directory. filepath.EvalSymlinks follows 255 of them, through
// thousands of directories each, before every command. The kernel follows 40.
func TestLinksOfUsersTakeNoTime(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	target, short := filepath.Join(home, "target"), filepath.Join(home, "short")
	next := target
	err = errors.Join(os.Mkdir(target, 0o700), os.Mkdir(short, 0o700), os.Symlink(short, filepath.Join(home, ".aws")))
	for i := range 100 {
		link := filepath.Join(home, "link"+strconv.Itoa(i))
		err, next = errors.Join(err, os.Symlink(next, link)), link
	}
	if err = errors.Join(err, os.Symlink(next, filepath.Join(home, ".ssh"))); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	closed := closedPlaces(newBudget(anyTime, maxLooked), nil)
	if slices.Contains(closed, target) || !slices.Contains(closed, short) {
		t.Errorf("got %q, want %s and not %s", closed, short, target)
	}
	for _, name := range list(".azure .gnupg .kube .docker") { // each less than 40 links and 4096 directories
		if err := os.Symlink(strings.Repeat("short/../", 400)+"short", filepath.Join(home, name)); err != nil {
			t.Fatal(err)
		}
	}
	seen := namesIn{budget: newBudget(anyTime, 100_000)}
	if closed = closedIn(home, nil, &seen); !slices.Contains(closed, home) || len(seen.dirs) > 10 {
		t.Errorf("got %q from %d directories, want the whole home once its part of the budget is used up", closed, len(seen.dirs))
	}
}

// TestUsersCloseOnlyWhatIsTheirs: each user of the machine can make links in a home directory, and in the one for temporary files.
func TestUsersCloseOnlyWhatIsTheirs(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	home, temp, theirs, others := filepath.Join(dir, "home"), filepath.Join(dir, "temp"), filepath.Join(dir, "theirs"), filepath.Join(dir, "others")
	inside, sandbox := filepath.Join(home, ".aws"), filepath.Join(temp, sandboxPrefix+"one")
	for _, made := range []string{home, temp, theirs, others, inside, sandbox} {
		err = errors.Join(err, os.Mkdir(made, 0o755))
	}
	root := os.Geteuid() == 0 // without it, the home is the server's
	if root {
		err = errors.Join(err, os.Chown(home, 4711, 4711), os.Chown(theirs, 4711, 4711))
	}
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{inside: true, theirs: true, others: !root, "/": !root} {
		if got := keptBy(home, path); got != want {
			t.Errorf("%s is kept by %s: got %v, want %v", path, home, got, want)
		}
	}
	if err := os.Symlink("/", sandbox+"-link"); err != nil {
		t.Skipf("this system makes no links: %v", err)
	}
	t.Setenv("TMPDIR", temp)
	closed := closedPlaces(newBudget(anyTime, maxLooked), nil)
	if slices.Contains(closed, "/") || !slices.Contains(closed, sandbox) || newPlaces(closed).holdFile(others) {
		t.Errorf("got %q, want that %s and the files beside it are not closed", closed, sandbox)
	}
}

// TestManySandboxesOfUsersTakeNoTime: each user of the machine can make directories like those of sandboxes.
func TestManySandboxesOfUsersTakeNoTime(t *testing.T) {
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	before := len(closedPlaces(newBudget(anyTime, maxLooked), nil))
	for i := range maxEntries + 100 {
		if err := os.Mkdir(filepath.Join(temp, sandboxPrefix+strconv.Itoa(i)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if got, most := len(closedPlaces(newBudget(anyTime, maxLooked), nil))-before, maxEntries; got > most {
		t.Errorf("got %d closed places more, want at most %d", got, most)
	}
}

// TestManyEntriesOfAHomeAreNotRead: programs in sandboxes, if the home is a writable workspace, and its user can make many spellings of each
// directory. Then the whole home is closed, and what its links close elsewhere is not looked for.
func TestManyEntriesOfAHomeAreNotRead(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	err = os.Mkdir(filepath.Join(home, ".aws"), 0o700)
	for _, name := range []string{"share", "Share", "SHARE"} {
		dir := filepath.Join(home, ".local", name, "keyrings")
		err = errors.Join(err, os.MkdirAll(dir, 0o700))
		for i := range 30 {
			err = errors.Join(err, os.Mkdir(filepath.Join(filepath.Dir(dir), strconv.Itoa(i)), 0o700))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	seen := namesIn{budget: newBudget(anyTime, maxHome)}
	if closed := closedIn(home, nil, &seen); slices.Contains(closed, home) || !slices.Contains(closed, filepath.Join(home, ".local/Share/keyrings")) {
		t.Errorf("got %q, want the places of secrets alone", closed)
	}
	most := len(seen.dirs)
	seen = namesIn{budget: newBudget(anyTime, (maxHome-seen.budget.left)/2)}
	closed := closedIn(home, nil, &seen)
	if !slices.Contains(closed, home) || len(seen.dirs) >= most {
		t.Errorf("got %q from %d directories, want the whole home, and less than %d directories", closed, len(seen.dirs), most)
	}
	if all := besides(newBudget(anyTime, maxLooked), filepath.Dir(home), closed); slices.Contains(all, home) || underAny(home, all) {
		t.Errorf("got that commands read %q, want nothing of the home", all)
	}
}

// TestNoNameIsBeyondWhatIsLookedAt: if nothing in a directory is closed, Landlock allows the directory with all of its entries. So the server finds a place
// of keys among very many entries, or closes the whole home. The home of the server's user has a larger budget.
func TestNoNameIsBeyondWhatIsLookedAt(t *testing.T) {
	home, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("HOME", home)
	var places []string
	for i := range 64 { // the order of the file system decides which entries come first
		name := []byte("bravesoftware")
		for bit := range 6 {
			if i>>bit&1 != 0 {
				name[bit] -= 'a' - 'A'
			}
		}
		places = append(places, filepath.Join(home, ".config", string(name)))
		err = errors.Join(err, os.MkdirAll(places[i], 0o700))
	}
	for i := range 2 * maxEntries {
		err = errors.Join(err, os.WriteFile(filepath.Join(home, ".config", "some-file-name-"+strconv.Itoa(i)), nil, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	closed := closedPlaces(newBudget(anyTime, maxLooked), nil)
	for _, place := range places {
		if !slices.Contains(closed, place) && os.PathSeparator == '/' {
			t.Fatalf("got that %s is not closed", place)
		}
	}
	if slices.Contains(closed, home) {
		t.Error("got that the whole home of the server's user is closed")
	}
	crowded, inside := newPlaces([]string{home}), filepath.Join(home, "project")
	if err := readable(newBudget(anyTime, maxLooked), inside, inside, crowded); err == nil || !strings.Contains(err.Error(), "too much in") {
		t.Errorf("got %v, want that the home has too much in it", err)
	}
	crowded.own = []string{home}
	if err := readable(newBudget(anyTime, maxLooked), inside, inside, crowded); err == nil || !strings.Contains(err.Error(), "belongs to this program") {
		t.Errorf("got %v, want that the directory is the program's", err)
	}
}

// TestHomesOfUsersOutsideOfHome: keys are closed in the homes of all users who have a shell.
func TestHomesOfUsersOutsideOfHome(t *testing.T) {
	text := "root:x:0:0:root:/root:/bin/bash\njenkins:x:100:100::/var/lib/jenkins:/bin/bash\nann:x:1001:1001:Ann:/export/home/ann/:/usr/bin/zsh\n" +
		"sync:x:4:65534:sync:/bin:/bin/sync\nftp:x:101:101::/srv/ftp:/usr/sbin/nologin\nsrv:x:102:102::/srv:/bin/sh\nshort:x:1\nrel:x:103:103::home:/bin/sh\nusual:x:104:104::/export/home/bob:\n"
	if got, want := homesOf(text), []string{"/var/lib/jenkins", "/export/home/ann", "/export/home/bob"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
