package engine_test

import (
	"archive/zip"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/store/storetest"
)

func python(specs ...string) sandboxmcp.InstallAsk {
	return sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: specs}
}

// install installs packages, and returns them as NAME VERSION.
func install(t *testing.T, e *engine.Engine, ask sandboxmcp.InstallAsk, who ...sandboxmcp.Caller) []string {
	t.Helper()
	r, err := e.Install(t.Context(), callerOf(who), ask)
	if err != nil {
		t.Fatalf("install %v: %v", ask.Packages, err)
	}
	var all []string
	for _, p := range r.Installed {
		if len(p.SHA256) != 64 {
			t.Errorf("%s has the hash %q", p.Name, p.SHA256)
		}
		all = append(all, p.Name+" "+p.Version)
	}
	return all
}

func stdout(t *testing.T, e *engine.Engine, want string, r sandboxmcp.Request, who ...sandboxmcp.Caller) {
	t.Helper()
	if res := execute(t, e, r, who...); res.Stdout != want {
		t.Errorf("%s: got %s %q %q, want %q", r.Code, res.Status, res.Stdout, res.Stderr, want)
	}
}

const (
	sees   = "import demo; print(demo.says)"
	misses = "import importlib.util; print(importlib.util.find_spec('demo'))"
)

// TestInstallIntoALiveSession: interpreters of every language that run already see the packages, no
// other session and no single run does, and the network stays closed.
func TestInstallIntoALiveSession(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	s, other := create(t, e, sandboxmcp.SessionSpec{}), create(t, e, sandboxmcp.SessionSpec{})
	run := func(id sandboxmcp.SessionID, l sandboxmcp.Language, code string) sandboxmcp.Request {
		return sandboxmcp.Request{SessionID: id, Language: l, Code: code}
	}
	stdout(t, e, "None\n", run(s, "python", "import importlib.util; kept = 'kept'; print(importlib.util.find_spec('demo'))"))
	stdout(t, e, "up\n", run(s, "shell", "echo up"))
	ask := python("demo==1.0")
	ask.SessionID = s
	if diff := cmp.Diff([]string{"demo 1.0"}, install(t, e, ask)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	stdout(t, e, "one kept\n", run(s, "python", "import demo; print(demo.says, kept)"))
	stdout(t, e, "one\n", run(s, "python", "import subprocess, sys; print(subprocess.run([sys.executable, '-c', 'import demo; print(demo.says)'], capture_output=True, text=True).stdout, end='')"))
	stdout(t, e, "one\n", run(s, "shell", "python3 -c 'import demo; print(demo.says)'"))
	stdout(t, e, "OSError\n", run(s, "python", "try:\n    open(demo.__file__, 'a')\nexcept OSError:\n    print('OSError')"))
	stdout(t, e, "None\n", run(other, "python", misses))
	stdout(t, e, "None\n", sandboxmcp.Request{Code: misses})

	before := x.asked.Load()
	x.Close() // the same once more needs no index
	ask.SessionID = other
	install(t, e, ask)
	stdout(t, e, "one\n", run(other, "python", sees))
	if got := x.asked.Load(); got != before {
		t.Errorf("got %d more requests to the index, want none", got-before)
	}
	res := execute(t, e, run(s, "python", fmt.Sprintf("import urllib.request\ntry:\n    urllib.request.urlopen(%q, timeout=2)\nexcept OSError as e:\n    print('closed')", x.URL)))
	if res.Stdout != "closed\n" {
		t.Errorf("got %q, want that the network is closed", res.Stdout)
	}
	all, err := e.Audit(t.Context(), sandboxmcp.Caller{}, sandboxmcp.AuditQuery{Action: "install_package", OldestFirst: true})
	if err != nil || len(all.Entries) != 3 || all.Entries[0].Phase != sandboxmcp.PhaseIntent || all.Entries[1].SessionID != s || all.Entries[1].Detail != "python: demo==1.0" || !strings.Contains(fmt.Sprint(all.Entries[1].Metadata["packages"]), "pkg:pypi/demo@1.0") {
		t.Errorf("got the record %+v, %v; want an intent, and a line of demo", all, err)
	}
}

// TestNoIndexIsAskedUnrecorded: if the audit cannot be written, the index is not asked.
func TestNoIndexIsAskedUnrecorded(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	var state string
	e := x.open(t, func(c *engine.Config) {
		c.SQLitePath = filepath.Join(t.TempDir(), "sandboxmcp.db")
		state = filepath.Dir(c.SQLitePath)
	})
	needs(t, e, sandboxmcp.Python)
	storetest.Refuse(t, state)
	before := x.asked.Load()
	if _, err := e.Install(t.Context(), sandboxmcp.Caller{}, python("demo==1.0")); err == nil || x.asked.Load() != before {
		t.Errorf("got %v and %d requests to the index, want an error and none", err, x.asked.Load()-before)
	}
}

// TestPackagesOfANamespace: without a session, all later runs of the namespace see the packages,
// also those of a session that lives, and no other namespace does.
func TestPackagesOfANamespace(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python, sandboxmcp.Shell)
	one, two := of("one"), of("two")
	id := create(t, e, sandboxmcp.SessionSpec{}, one)
	stdout(t, e, "None\n", sandboxmcp.Request{SessionID: id, Code: misses}, one)
	if diff := cmp.Diff([]string{"demo 2.0", "part 1.0"}, install(t, e, python("demo"), one)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	stdout(t, e, "two, part\n", sandboxmcp.Request{Code: sees}, one)
	stdout(t, e, "two, part\n", shell("python3 -c 'import demo; print(demo.says)'"), one)
	stdout(t, e, "two, part\n", sandboxmcp.Request{SessionID: id, Code: sees}, one)
	stdout(t, e, "two, part\n", sandboxmcp.Request{SessionID: create(t, e, sandboxmcp.SessionSpec{}, one), Code: sees}, one)
	stdout(t, e, "None\n", sandboxmcp.Request{Code: misses}, two)
	if all, err := e.PackageSets(t.Context(), two); len(all) != 0 || err != nil {
		t.Errorf("got %v, %v of another namespace, want none", all, err)
	}
	all, err := e.PackageSets(t.Context(), one)
	if err != nil || len(all) != 1 || len(all[0].Packages) != 2 || all[0].Bytes == 0 || !slices.Equal(all[0].Requested, []string{"demo"}) {
		t.Errorf("got %+v, %v; want the set of demo", all, err)
	}
	if _, err := e.RemovePackages(t.Context(), two, "demo"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeNotFound {
		t.Errorf("remove from another namespace: got %v, want not_found", err)
	}
	if gone, err := e.RemovePackages(t.Context(), one, "Demo"); len(gone) != 1 || err != nil {
		t.Errorf("got %v, %v; want that the set is removed", gone, err)
	}
	stdout(t, e, "None\n", sandboxmcp.Request{Code: misses}, one)
}

// TestForgedPackages: a writer of the database can neither give a namespace the packages of another one nor put back
// packages that were removed. VerifyAudit names both rows.
func TestForgedPackages(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	dir := filepath.Join(t.TempDir(), "state")
	e := x.openAt(t, dir)
	needs(t, e, sandboxmcp.Python)
	a, b := of("team-a"), of("team-b")
	install(t, e, python("demo"), a)
	install(t, e, python("part"), b)
	storetest.Run(t, dir, `CREATE TABLE copies AS SELECT * FROM packages`)
	if gone, err := e.RemovePackages(t.Context(), b, "part"); len(gone) != 1 || err != nil {
		t.Fatalf("got %v, %v; want that the set is removed", gone, err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Run(t, dir, `INSERT INTO packages SELECT * FROM copies WHERE namespace = 'team-b'; UPDATE copies SET namespace = 'team-b';
		INSERT INTO packages SELECT * FROM copies WHERE requested LIKE '%demo%'; DROP TABLE copies`)
	e = x.openAt(t, dir)
	stdout(t, e, "two, part\n", sandboxmcp.Request{Code: sees}, a)
	stdout(t, e, "None None\n", sandboxmcp.Request{Code: "from importlib.util import find_spec; print(find_spec('demo'), find_spec('part'))"}, b)
	rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{})
	if err != nil || rep.OK || len(rep.Faults) != 2 || rep.Faults[0].Kind != "forged" || !strings.Contains(fmt.Sprint(rep.Faults), "were not installed by a server") || !strings.Contains(fmt.Sprint(rep.Faults), "were removed") {
		t.Errorf("got %+v and %v, want the copied row and the one that was put back", rep, err)
	}
	install(t, e, python("demo"), b) // in place of the copied row
	install(t, e, python("part"), b)
	stdout(t, e, "two, part\n", sandboxmcp.Request{Code: sees}, b)
	if rep, err := e.VerifyAudit(t.Context(), sandboxmcp.Caller{}); err != nil || !rep.OK {
		t.Errorf("installed again: got %+v and %v, want no fault", rep, err)
	}
}

// TestPackagesOfARun: they are there for that run alone, or for all later runs of its session.
func TestPackagesOfARun(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	stdout(t, e, "one\n", sandboxmcp.Request{Code: sees, Packages: []string{"demo==1.0"}})
	stdout(t, e, "None\n", sandboxmcp.Request{Code: misses})
	stdout(t, e, "two, part\n", sandboxmcp.Request{Code: sees, SessionID: "s", Packages: []string{"demo"}})
	stdout(t, e, "two, part\n", sandboxmcp.Request{Code: sees, SessionID: "s"})
	stdout(t, e, "one\n", sandboxmcp.Request{Code: "import sys; sys.modules.pop('demo'); import demo; print(demo.says)", SessionID: "s", Packages: []string{"demo==1.0"}})
	res, err := e.Start(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: sees, Packages: []string{"demo==1.0"}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the background run ends", func() bool {
		res, err = e.Lookup(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: res.RequestID})
		return err != nil || res.Status != sandboxmcp.StatusRunning
	})
	if err != nil || res.Stdout != "one\n" {
		t.Errorf("in the background: got %+v, %v", res, err)
	}
}

// TestNodePackages: require and import find them, in single runs and in a session that was live
// before. No install script is run.
func TestNodePackages(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Node)
	id := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Node})
	node := func(code string) sandboxmcp.Request { return sandboxmcp.Request{Language: sandboxmcp.Node, Code: code} }
	in := func(code string) sandboxmcp.Request {
		return sandboxmcp.Request{Language: sandboxmcp.Node, SessionID: id, Code: code}
	}
	stdout(t, e, "MODULE_NOT_FOUND\n", in("try { require('demo') } catch (e) { console.log(e.code) }"))
	ask := sandboxmcp.InstallAsk{Language: sandboxmcp.Node, Packages: []string{"demo"}, SessionID: id}
	_, err := e.Install(t.Context(), sandboxmcp.Caller{}, ask)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeRuntimeUnavailable {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	stdout(t, e, "node one false\n", in("console.log(require('demo').says, require('fs').existsSync('/mnt/data/ran'))"))
	stdout(t, e, "node one\n", in("import { says } from 'demo'; console.log(says)"))
	stdout(t, e, "ERR_MODULE_NOT_FOUND\n", in("try { await import('nothing') } catch (e) { console.log(e.code) }"))
	stdout(t, e, "MODULE_NOT_FOUND\n", node("try { require('demo') } catch (e) { console.log(e.code) }"))
	ask.SessionID = ""
	install(t, e, ask)
	stdout(t, e, "node one\n", node("console.log(require('demo').says)"))
	stdout(t, e, "node one\n", node("import { says } from 'demo'; console.log(says)"))
	stdout(t, e, "node one\n", sandboxmcp.Request{Language: sandboxmcp.Shell, Code: "node -p \"require('demo').says\""})
}

// TestInstallRefuses: each refusal has its code, and is on record if anything was tried.
func TestInstallRefuses(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t, func(c *engine.Config) { c.PackagesDeny = []string{"part"} })
	needs(t, e, sandboxmcp.Python)
	for name, c := range map[string]struct {
		ask  sandboxmcp.InstallAsk
		want sandboxmcp.Code
	}{
		"an option":              {python("--index-url"), sandboxmcp.CodePackageRejected},
		"a path":                 {python("demo", "../x"), sandboxmcp.CodePackageRejected},
		"a shell":                {sandboxmcp.InstallAsk{Language: sandboxmcp.Shell, Packages: []string{"demo"}}, sandboxmcp.CodeInvalidArgument},
		"ruby":                   {sandboxmcp.InstallAsk{Language: "ruby", Packages: []string{"demo"}}, sandboxmcp.CodeUnsupportedLanguage},
		"too many":               {python(slices.Repeat([]string{"demo"}, 51)...), sandboxmcp.CodeInvalidArgument},
		"a session that is none": {sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"demo"}, SessionID: "none"}, sandboxmcp.CodeSessionNotFound},
		"a bad session":          {sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"demo"}, SessionID: "a b"}, sandboxmcp.CodeInvalidSessionID},
		"no wheel":               {python("source"), sandboxmcp.CodePackageRejected},
		"no such package":        {python("absent"), sandboxmcp.CodeInstallFailed},
		"no such version":        {python("demo==9"), sandboxmcp.CodeInstallFailed},
		"a denied dependency":    {python("demo==2.0"), sandboxmcp.CodePackageRejected},
	} {
		r, err := e.Install(t.Context(), sandboxmcp.Caller{}, c.ask)
		if sandboxmcp.CodeOf(err) != c.want {
			t.Errorf("%s: got %+v, %v; want %s", name, r, err, c.want)
		}
		if hint := sandboxmcp.AsError(err).Hint; name == "ruby" && hint != "use python or node" {
			t.Errorf("%s: got the hint %q, want the languages that have packages", name, hint)
		}
	}
	if r, err := e.Install(t.Context(), sandboxmcp.Caller{}, python()); err != nil || !r.Success || len(r.Installed) != 0 || !strings.Contains(r.Output, "No packages") {
		t.Errorf("no packages: got %+v, %v; want success", r, err)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "1", Packages: []string{"-r"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected {
		t.Errorf("a run: got %v, want package_rejected", err)
	}
	if _, err := e.Execute(t.Context(), sandboxmcp.Caller{}, sandboxmcp.Request{Code: "1", Packages: []string{"source"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodePackageRejected {
		t.Errorf("a run: got %v, want package_rejected", err)
	}
}

// TestTwoInstallsAtOnce: installations do not wait for each other, and the same tree may be made
// twice.
func TestTwoInstallsAtOnce(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	var waits []func() ([]string, error)
	for _, spec := range []string{"demo==1.0", "demo==1.0", "part"} {
		waits = append(waits, background(t, func() ([]string, error) {
			r, err := e.Install(t.Context(), sandboxmcp.Caller{}, python(spec))
			return []string{fmt.Sprint(len(r.Installed))}, err
		}))
	}
	for _, wait := range waits {
		if got, err := wait(); err != nil || got[0] != "1" {
			t.Errorf("got %v, %v; want one package", got, err)
		}
	}
	stdout(t, e, "one part\n", sandboxmcp.Request{Code: "import demo, part; print(demo.says, part.says)"})
}

// TestAskingForPackages: with the policy ask, an installation waits for a person: once for what was
// asked for and once for what it needs, in each namespace.
func TestAskingForPackages(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t, func(c *engine.Config) { c.Packages = "ask" })
	needs(t, e, sandboxmcp.Python)
	one, two := of("one"), of("two")
	approve := func(spec string) {
		t.Helper()
		_, err := e.Install(t.Context(), one, python(spec))
		pending := asCode(t, err, sandboxmcp.CodeApprovalPending)
		id, _ := pending.Fields["approval_id"].(string)
		how, _ := pending.Fields["how_to_approve"].(string)
		if id == "" || !strings.Contains(how, "packages approve "+id) {
			t.Errorf("got the fields %v, want how to approve", pending.Fields)
		}
		if _, err := e.DecidePackage(t.Context(), two, sandboxmcp.AccessDecision{ID: id}); err == nil {
			t.Error("another namespace has decided")
		}
		if l, err := e.PackageAccess(t.Context(), two); len(l.Pending)+len(l.Granted) != 0 || err != nil {
			t.Errorf("got %+v, %v of another namespace", l, err)
		}
		if a, err := e.DecidePackage(t.Context(), everyone(), sandboxmcp.AccessDecision{ID: id}); err != nil || !a.Approved {
			t.Errorf("got %+v, %v; want it approved", a, err)
		}
	}
	approve("demo==2.0") // the package itself
	approve("demo==2.0") // part, which it needs
	if diff := cmp.Diff([]string{"demo 2.0", "part 1.0"}, install(t, e, python("demo==2.0"), one)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err := e.Execute(t.Context(), two, sandboxmcp.Request{Code: sees, Packages: []string{"demo==2.0"}}) // although the tree is there
	wantCode(t, err, sandboxmcp.CodeApprovalPending)
	if _, err := e.RevokePackage(t.Context(), two, "python:part"); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("revoke in another namespace: got %v", err)
	}
	if _, err := e.RevokePackage(t.Context(), one, "python:Part"); err != nil {
		t.Error(err)
	}
	_, err = e.Install(t.Context(), one, python("demo==2.0"))
	pending := asCode(t, err, sandboxmcp.CodeApprovalPending)
	id, _ := pending.Fields["approval_id"].(string)
	if _, err := e.DecidePackage(t.Context(), everyone(), sandboxmcp.AccessDecision{ID: id, Deny: true}); err != nil {
		t.Error(err)
	}
	_, err = e.Install(t.Context(), one, python("demo==2.0"))
	wantCode(t, err, sandboxmcp.CodePackageRejected)
	if _, err := e.DecidePackage(t.Context(), one, sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Package: "python:part"}, Scope: sandboxmcp.GrantOnce}); err != nil {
		t.Error(err)
	}
	install(t, e, python("demo==2.0"), one)
	_, err = e.Install(t.Context(), one, python("demo==2.0"))
	if err == nil {
		t.Error("a grant for one installation was used twice")
	}
}

// TestGrantsOfASessionEndWithIt: a later session of the same id has to ask again, also if its first
// run asks before the session is made.
func TestGrantsOfASessionEndWithIt(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	e := x.open(t, func(c *engine.Config) { c.Packages = "ask" })
	needs(t, e, sandboxmcp.Python)
	id := create(t, e, sandboxmcp.SessionSpec{ID: "mine"})
	into := sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"demo==1.0"}, SessionID: id}
	_, err := e.DecidePackage(t.Context(), of("default"), sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Package: "python:demo"}, Scope: sandboxmcp.GrantSession, SessionID: id})
	if err != nil {
		t.Fatal(err)
	}
	install(t, e, into)
	if err = e.TerminateSession(t.Context(), of("default"), id); err != nil {
		t.Fatal(err)
	}
	_, err = e.Execute(t.Context(), of("default"), sandboxmcp.Request{Code: sees, SessionID: id, Packages: into.Packages})
	wantCode(t, err, sandboxmcp.CodeApprovalPending)
	create(t, e, sandboxmcp.SessionSpec{ID: id})
	_, err = e.Install(t.Context(), of("default"), into)
	wantCode(t, err, sandboxmcp.CodeApprovalPending)
}

// TestInstallationsTakeTurns: what an index lists is memory of the server, so four installations go
// on at once, and too many that wait are refused.
func TestInstallationsTakeTurns(t *testing.T) {
	t.Parallel()
	const calls = 80
	arrived, over := make(chan struct{}, calls), make(chan struct{})
	x := &index{files: map[string][]byte{}}
	x.Server = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-over
	}))
	t.Cleanup(x.Close)
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	ctx, cancel := context.WithCancel(t.Context())
	codes := make(chan sandboxmcp.Code, calls)
	for i := range calls {
		go func() {
			_, err := e.Install(ctx, sandboxmcp.Caller{}, python(fmt.Sprintf("demo%d", i)))
			codes <- sandboxmcp.CodeOf(err)
		}()
	}
	inside, full := 0, 0
	for inside <= 4 && (inside < 4 || full == 0) {
		select {
		case <-arrived:
			inside++
		case code := <-codes:
			if full++; code != sandboxmcp.CodeQueueFull {
				t.Errorf("got %q, want queue_full", code)
			}
		}
	}
	if inside > 4 {
		t.Errorf("%d installations ask the index at once, want 4", inside)
	}
	cancel()
	close(over)
	for range calls - full {
		<-codes
	}
}

// TestNothingIsBuilt: metadata of a package may name the URL of another one. If that is an archive
// with a build program, such as one hidden behind the metadata of a wheel, pip would execute it.
func TestNothingIsBuilt(t *testing.T) {
	t.Parallel()
	x := newIndex(t)
	var b bytes.Buffer
	z := zip.NewWriter(&b)
	for name, text := range map[string]string{
		"hidden-1.0/pyproject.toml": "[build-system]\nrequires = []\nbuild-backend = 'b'\nbackend-path = ['.']\n",
		"hidden-1.0/b.py":           "import urllib.request as u\nu.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:312/simple/built/')\n",
	} {
		w, err := z.Create(name)
		if err == nil {
			_, err = w.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	hidden := wheel(t, "hidden", "1.0", "part\n\n"+b.String(), "")
	sum := sha256.Sum256(hidden)
	x.files["hidden-1.0-py3-none-any.whl"] = hidden
	x.files["asks-1.0-py3-none-any.whl"] = wheel(t, "asks", "1.0", "hidden @ http://127.0.0.1:312/files/"+hex.EncodeToString(sum[:])+"/hidden-1.0-py3-none-any.whl.metadata", "")
	var built atomic.Bool
	x.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "built") {
			built.Store(true)
		}
		x.serve(w, r)
	})
	e := x.open(t)
	needs(t, e, sandboxmcp.Python)
	_, err := e.Install(t.Context(), sandboxmcp.Caller{}, python("asks"))
	if built.Load() {
		t.Error("a program of a package was executed")
	}
	if failed := asCode(t, err, sandboxmcp.CodeInstallFailed); !strings.Contains(failed.Message, "has to be built is not installed") {
		t.Errorf("got %q, want that nothing is built", failed.Message)
	}
}
