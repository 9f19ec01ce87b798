package engine_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/engine"
)

// TestAnotherNamespaceFindsNothing: every verb that names something of a namespace
// answers a caller of another one as if it did not exist, and every list is empty.
func TestAnotherNamespaceFindsNothing(t *testing.T) {
	f := &fake{files: map[string]string{"a.txt": "A"}}
	e := open(t, f)
	owner, other := of("owner"), of("other")
	run := execute(t, e, shell("x"), owner)
	session := create(t, e, sandboxmcp.SessionSpec{Language: sandboxmcp.Shell}, owner)
	ctx := t.Context()
	if _, _, err := e.Upload(ctx, owner, sandboxmcp.Upload{SessionID: session, Name: "f", Content: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	if err := e.AddSecret(ctx, owner, sandboxmcp.SecretSpec{Key: "KEY", Value: sandboxmcp.NewSecret("correct horse battery")}); err != nil {
		t.Fatal(err)
	}
	asked, err := e.RequestEgress(ctx, owner, sandboxmcp.EgressAsk{Domain: "api.site.test"})
	if err != nil || asked.ApprovalID == "" {
		t.Fatalf("request_egress: got %+v, %v", asked, err)
	}
	if _, err := e.Start(ctx, owner, shell("x")); err != nil {
		t.Fatal(err)
	}
	for verb, ask := range namedVerbs(ctx, e, run.RequestID, session, asked.ApprovalID) {
		err := ask(other)
		if code := sandboxmcp.CodeOf(err); code != sandboxmcp.CodeRequestNotFound && code != sandboxmcp.CodeSessionNotFound && code != sandboxmcp.CodeNotFound {
			t.Errorf("%s: got %v, want a not_found code", verb, err)
		}
		if err := ask(everyone()); verb != "FindApproval" && sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
			t.Errorf("%s for all namespaces: got %v, want access_denied", verb, err)
		}
	}
	for verb, count := range listVerbs(ctx, e) {
		if n, err := count(other); n != 0 || err != nil {
			t.Errorf("%s: got %d things of another namespace (%v), want none", verb, n, err)
		}
		if n, err := count(owner); n == 0 || err != nil {
			t.Errorf("%s: got %d things of its own (%v), want some", verb, n, err)
		}
	}
	if _, err := e.VerifyAudit(ctx, other); sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("VerifyAudit: got %v, want access_denied", err)
	}
}

// namedVerbs are the verbs that name a thing.
func namedVerbs(ctx context.Context, e *engine.Engine, run sandboxmcp.RequestID, session sandboxmcp.SessionID, approval string) map[string]func(sandboxmcp.Caller) error {
	return map[string]func(sandboxmcp.Caller) error{
		"Lookup": func(c sandboxmcp.Caller) error {
			_, err := e.Lookup(ctx, c, sandboxmcp.Lookup{RequestID: run})
			return err
		},
		"Cancel":           func(c sandboxmcp.Caller) error { return e.Cancel(ctx, c, run) },
		"Output":           func(c sandboxmcp.Caller) error { _, err := e.Output(ctx, c, run, "stdout"); return err },
		"ArtifactContent":  func(c sandboxmcp.Caller) error { _, err := e.ArtifactContent(ctx, c, run, "a.txt"); return err },
		"TerminateSession": func(c sandboxmcp.Caller) error { return e.TerminateSession(ctx, c, session) },
		"CloseSession":     func(c sandboxmcp.Caller) error { return e.CloseSession(ctx, c, session) },
		"Inspect":          func(c sandboxmcp.Caller) error { _, err := e.Inspect(ctx, c, session); return err },
		"Bridge": func(c sandboxmcp.Caller) error {
			_, err := e.Bridge(ctx, c, sandboxmcp.Bridge{From: session})
			return err
		},
		"Upload": func(c sandboxmcp.Caller) error {
			_, _, err := e.Upload(ctx, c, sandboxmcp.Upload{SessionID: session, Name: "g", Content: []byte("x")})
			return err
		},
		"SessionEntries": func(c sandboxmcp.Caller) error {
			_, err := e.SessionEntries(ctx, c, session, true)
			return err
		},
		"SessionFiles": func(c sandboxmcp.Caller) error { _, err := e.SessionFiles(ctx, c, session); return err },
		"ReadFile":     func(c sandboxmcp.Caller) error { _, _, err := e.ReadFile(ctx, c, session, "f", 10); return err },
		"RemoveFile":   func(c sandboxmcp.Caller) error { return e.RemoveFile(ctx, c, session, "f") },
		"FindApproval": func(c sandboxmcp.Caller) error { _, err := e.FindApproval(ctx, c, approval); return err },
		"RevokeEgress": func(c sandboxmcp.Caller) error { _, err := e.RevokeEgress(ctx, c, "api.site.test"); return err },
		"DeleteSecret": func(c sandboxmcp.Caller) error { return e.DeleteSecret(ctx, c, "KEY") },
		"Install": func(c sandboxmcp.Caller) error {
			_, err := e.Install(ctx, c, sandboxmcp.InstallAsk{Language: sandboxmcp.Python, Packages: []string{"six"}, SessionID: session})
			return err
		},
		"RemovePackages": func(c sandboxmcp.Caller) error { _, err := e.RemovePackages(ctx, c, "six"); return err },
	}
}

// listVerbs are the verbs that list, with how many things they list.
func listVerbs(ctx context.Context, e *engine.Engine) map[string]func(sandboxmcp.Caller) (int, error) {
	return map[string]func(sandboxmcp.Caller) (int, error){
		"Sessions": func(c sandboxmcp.Caller) (int, error) { all, err := e.Sessions(ctx, c); return len(all), err },
		"Inspect": func(c sandboxmcp.Caller) (int, error) {
			s, err := e.Inspect(ctx, c, "")
			return len(s.Sessions) + len(s.VaultKeys) + len(s.Egress.Pending), err
		},
		"Jobs": func(c sandboxmcp.Caller) (int, error) { all, err := e.Jobs(ctx, c); return len(all), err },
		"Egress": func(c sandboxmcp.Caller) (int, error) {
			l, err := e.Egress(ctx, c)
			return len(l.Pending) + len(l.Granted), err
		},
		"Secrets": func(c sandboxmcp.Caller) (int, error) { l, err := e.Secrets(ctx, c); return len(l.Secrets), err },
		"Audit": func(c sandboxmcp.Caller) (int, error) {
			p, err := e.Audit(ctx, c, sandboxmcp.AuditQuery{})
			return len(p.Entries) + p.Total, err
		},
		"Events": func(c sandboxmcp.Caller) (int, error) { all, err := e.Events(ctx, c); return len(all), err },
		"Follow": func(c sandboxmcp.Caller) (int, error) {
			ctx, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			events, err := e.Follow(ctx, c, true)
			n := 0
			for range events {
				n++
			}
			return n, err
		},
	}
}

// otherVerbs are the verbs that neither name nor list what a namespace has, with what shows that
// they keep namespaces apart.
var otherVerbs = map[string]string{
	"Execute":       "TestCallersHaveOneNamespace",
	"Start":         "TestCallersHaveOneNamespace",
	"CreateSession": "makes a session of the caller's namespace",
	"RequestEgress": "TestDecisionsNameTheirNamespace",
	"DecideEgress":  "TestDecisionsNameTheirNamespace",
	"AddSecret":     "adds to the caller's namespace",
	"PackageAccess": "TestAskingForPackages",
	"DecidePackage": "TestAskingForPackages",
	"RevokePackage": "TestAskingForPackages",
	"PackageSets":   "TestPackagesOfANamespace",
	"FetchPage":     "reads nothing of a namespace",
	"BrowsePage":    "reads nothing of a namespace",
	"SearchWeb":     "reads nothing of a namespace",
	"Validate":      "reads nothing of a namespace",

	"ExecHost":          "TestPersonsAllowCommands of internal/host",
	"RequestHostAccess": "TestPersonsAllowCommands of internal/host",
	"DecideHostAccess":  "TestPersonsAllowCommands of internal/host",
	"RevokeHostAccess":  "TestPersonsAllowCommands of internal/host",
	"HostAccess":        "TestPersonsAllowCommands of internal/host",
	"ReadHostFile":      "reads nothing of a namespace",
	"WriteHostFile":     "reads nothing of a namespace",
	"ListHostFiles":     "reads nothing of a namespace",
	"CopyHostFile":      "finds the session with Upload",

	"SetLimits":   "sets those of the caller's namespace",
	"VerifyAudit": "TestAnotherNamespaceFindsNothing",
	"Runtimes":    "has no caller",
	"Stats":       "has no caller",
}

// TestEveryVerbIsTriedFromAnotherNamespace: each verb of Service has a row in namedVerbs or
// listVerbs, or a reason in otherVerbs.
func TestEveryVerbIsTriedFromAnotherNamespace(t *testing.T) {
	ctx := t.Context()
	rows := slices.Concat(slices.Collect(maps.Keys(namedVerbs(ctx, nil, "", "", ""))), slices.Collect(maps.Keys(listVerbs(ctx, nil))), slices.Collect(maps.Keys(otherVerbs)))
	slices.Sort(rows)
	var verbs []string
	for m := range reflect.TypeFor[sandboxmcp.Service]().Methods() {
		verbs = append(verbs, m.Name)
	}
	if diff := cmp.Diff(verbs, slices.Compact(rows)); diff != "" {
		t.Errorf("got other verbs than Service has: add a row to namedVerbs or listVerbs (-service +rows):\n%s", diff)
	}
}

// TestDecisionsNameTheirNamespace: an approval of another namespace cannot be
// decided, except by a caller that holds every namespace.
func TestDecisionsNameTheirNamespace(t *testing.T) {
	e := open(t, &fake{})
	asked, err := e.RequestEgress(t.Context(), of("owner"), sandboxmcp.EgressAsk{Domain: "api.site.test"})
	if err != nil {
		t.Fatal(err)
	}
	d := sandboxmcp.AccessDecision{ID: asked.ApprovalID}
	if _, err := e.DecideEgress(t.Context(), of("other"), d); sandboxmcp.CodeOf(err) != sandboxmcp.CodeRequestNotFound {
		t.Errorf("another namespace: got %v, want request_not_found", err)
	}
	if _, err := e.DecideEgress(t.Context(), everyone(), sandboxmcp.AccessDecision{Subject: sandboxmcp.Subject{Domain: "b.site.test"}}); sandboxmcp.CodeOf(err) != sandboxmcp.CodeAccessDenied {
		t.Errorf("a domain in all namespaces: got %v, want access_denied", err)
	}
	if got, err := e.DecideEgress(t.Context(), everyone(), d); err != nil || !got.Approved {
		t.Errorf("the owner of all: got %+v, %v; want approved", got, err)
	}
	if got, err := e.Egress(t.Context(), of("other")); err != nil || len(got.Granted) != 0 {
		t.Errorf("the grant shows in another namespace: %+v, %v", got.Granted, err)
	}
}

// TestCallersHaveOneNamespace: a caller whose namespace is no name is refused
// before anything is done.
func TestCallersHaveOneNamespace(t *testing.T) {
	f := &fake{}
	e := open(t, f)
	for _, ns := range []sandboxmcp.Namespace{"a/b", "a\n", "*", "**", sandboxmcp.Namespace(make([]byte, 65))} {
		for door, run := range map[string]func(context.Context, sandboxmcp.Caller, sandboxmcp.Request) (sandboxmcp.Result, error){"Execute": e.Execute, "Start": e.Start} {
			_, err := run(t.Context(), of(ns), shell("x"))
			var coded *sandboxmcp.Error
			if !errors.As(err, &coded) || coded.Code != sandboxmcp.CodeInvalidArgument && coded.Code != sandboxmcp.CodeAccessDenied {
				t.Errorf("%s in %q: got %v, want invalid_argument or access_denied", door, ns, err)
			}
		}
	}
	if calls := f.seen(); len(calls) != 0 {
		t.Errorf("calls of the backend: got %v, want none", calls)
	}
}
