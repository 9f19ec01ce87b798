package api_test

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
)

// Fields that do not travel: they are streams of the process that asks. Size
// belongs to Body; TestUploadBound looks at both.
var (
	requestStreams = []string{"Stdout", "Stderr", "Shown", "Queued", "Note"}
	uploadStreams  = []string{"Body", "Size"}
)

// verb calls one method of a client with filled input.
type verb struct {
	name   string // of the method of Client
	asks   string // of the method of Service; empty: the same
	nobody bool   // it acts for no caller
	call   func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error)
}

// list packs values, for inputs and answers.
func list(v ...any) []any { return v }

// verbs lists every verb of a client. TestEveryVerbIsListed fails if one
// of Service or Client is missing.
func verbs() []verb {
	return slices.Concat(runVerbs(), sessionVerbs(), fileVerbs(), egressVerbs(), machineVerbs(), keeperVerbs())
}

// with makes a verb of a method that takes one input and returns one answer.
func with[In, Out any](name string, method func(*api.Client, context.Context, sandboxmcp.Caller, In) (Out, error), except ...string) verb {
	return verb{name: name, call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
		arg := filled[In](except...)
		got, err := method(c, ctx, who, arg)
		return list(arg), list(got), list(filled[Out]()), err
	}}
}

// quietly makes a verb of a method that takes one input and returns no answer.
func quietly[In any](name string, method func(*api.Client, context.Context, sandboxmcp.Caller, In) error) verb {
	return verb{name: name, call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
		arg := filled[In]()
		return list(arg), nil, nil, method(c, ctx, who, arg)
	}}
}

// only makes a verb of a method that takes no input.
func only[Out any](name string, method func(*api.Client, context.Context, sandboxmcp.Caller) (Out, error)) verb {
	return verb{name: name, call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
		got, err := method(c, ctx, who)
		return nil, list(got), list(filled[Out]()), err
	}}
}

func runVerbs() []verb {
	return []verb{
		with("Execute", (*api.Client).Execute, requestStreams...),
		with("Start", (*api.Client).Start, requestStreams...),
		with("Lookup", (*api.Client).Lookup),
		only("Jobs", (*api.Client).Jobs),
		quietly("Cancel", (*api.Client).Cancel),
		{name: "Output", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			id, stream := filled[sandboxmcp.RequestID](), filled[string]()
			got, err := c.Output(ctx, who, id, stream)
			return list(id, stream), list(got), list(filled[[]byte]()), err
		}},
		{name: "ArtifactContent", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			id, path := filled[sandboxmcp.RequestID](), filled[string]()
			got, err := c.ArtifactContent(ctx, who, id, path)
			return list(id, path), list(got), list(filled[sandboxmcp.Artifact]()), err
		}},
	}
}

func sessionVerbs() []verb {
	return []verb{
		with("CreateSession", (*api.Client).CreateSession),
		quietly("TerminateSession", (*api.Client).TerminateSession),
		quietly("CloseSession", (*api.Client).CloseSession),
		only("Sessions", (*api.Client).Sessions),
		{name: "Session", asks: "Sessions", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			second := filled[[]sandboxmcp.Session]()[1]
			got, err := c.Session(ctx, who, second.ID)
			return nil, list(got), list(second), err
		}},
		with("Inspect", (*api.Client).Inspect),
		with("Bridge", (*api.Client).Bridge),
	}
}

func fileVerbs() []verb {
	return []verb{
		{name: "Upload", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			u := filled[sandboxmcp.Upload](uploadStreams...)
			id, path, err := c.Upload(ctx, who, u)
			answer := filled[uploadAnswer]()
			return list(u), list(id, path), list(answer.ID, answer.Path), err
		}},
		with("SessionFiles", (*api.Client).SessionFiles),
		{name: "SessionEntries", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			id, deep := filled[sandboxmcp.SessionID](), true
			got, err := c.SessionEntries(ctx, who, id, deep)
			return list(id, deep), list(got), list(filled[[]sandboxmcp.SessionEntry]()), err
		}},
		{name: "ReadFile", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			id, path, limit := filled[sandboxmcp.SessionID](), filled[string](), filled[int64]()
			file, content, err := c.ReadFile(ctx, who, id, path, limit)
			answer := filled[fileAnswer]()
			return list(id, path, limit), list(file, content), list(answer.File, answer.Content), err
		}},
		{name: "RemoveFile", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			id, path := filled[sandboxmcp.SessionID](), filled[string]()
			return list(id, path), nil, nil, c.RemoveFile(ctx, who, id, path)
		}},
	}
}

func egressVerbs() []verb {
	byDomain := with("DecideEgress", (*api.Client).DecideEgress, "ID") // a decision has an ID or a Domain
	return []verb{
		with("RequestEgress", (*api.Client).RequestEgress),
		with("FindApproval", (*api.Client).FindApproval),
		with("DecideEgress", (*api.Client).DecideEgress, "Domain"),
		byDomain,
		with("RevokeEgress", (*api.Client).RevokeEgress),
		only("Egress", (*api.Client).Egress),
	}
}

func machineVerbs() []verb {
	return []verb{
		with("ExecHost", (*api.Client).ExecHost),
		with("RequestHostAccess", (*api.Client).RequestHostAccess),
		with("DecideHostAccess", (*api.Client).DecideHostAccess, "Pattern"),
		with("RevokeHostAccess", (*api.Client).RevokeHostAccess),
		only("HostAccess", (*api.Client).HostAccess),
		with("ReadHostFile", (*api.Client).ReadHostFile),
		with("WriteHostFile", (*api.Client).WriteHostFile),
		with("ListHostFiles", (*api.Client).ListHostFiles),
		with("CopyHostFile", (*api.Client).CopyHostFile),
	}
}

func keeperVerbs() []verb {
	return []verb{
		quietly("AddSecret", (*api.Client).AddSecret),
		quietly("DeleteSecret", (*api.Client).DeleteSecret),
		only("Secrets", (*api.Client).Secrets),
		with("Validate", (*api.Client).Validate),
		with("Install", (*api.Client).Install, "Note"),
		only("PackageSets", (*api.Client).PackageSets),
		with("RemovePackages", (*api.Client).RemovePackages),
		only("PackageAccess", (*api.Client).PackageAccess),
		with("DecidePackage", (*api.Client).DecidePackage, "Package"),
		with("RevokePackage", (*api.Client).RevokePackage),
		with("FetchPage", (*api.Client).FetchPage),
		with("BrowsePage", (*api.Client).BrowsePage),
		with("SearchWeb", (*api.Client).SearchWeb),
		with("SetLimits", (*api.Client).SetLimits),
		with("Audit", (*api.Client).Audit),
		only("VerifyAudit", (*api.Client).VerifyAudit),
		only("Events", (*api.Client).Events),
		{name: "Follow", call: func(ctx context.Context, c *api.Client, who sandboxmcp.Caller) (in, out, want []any, err error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			events, err := c.Follow(ctx, who, true)
			if err != nil {
				return nil, nil, nil, err
			}
			return list(true), list(<-events), list(filled[sandboxmcp.Event]()), nil
		}},
		{name: "Runtimes", nobody: true, call: func(ctx context.Context, c *api.Client, _ sandboxmcp.Caller) (in, out, want []any, err error) {
			got, err := c.Runtimes(ctx)
			return nil, list(got), list(filled[sandboxmcp.Runtimes]()), err
		}},
		{name: "Stats", nobody: true, call: func(ctx context.Context, c *api.Client, _ sandboxmcp.Caller) (in, out, want []any, err error) {
			got, err := c.Stats(ctx)
			return nil, list(got), list(filled[sandboxmcp.Stats]()), err
		}},
	}
}

// received returns what a service was asked for in one verb of a client: the
// caller and the input. A field that several calls carry has the value of the last
// that set it: a lookup with content is two of them.
func received(t *testing.T, calls []call, verb string) (sandboxmcp.Caller, []any) {
	t.Helper()
	var in []any
	var caller sandboxmcp.Caller
	for i, c := range calls {
		if c.verb != verb || i > 0 && (c.caller != caller || len(c.in) != len(in)) {
			t.Errorf("got a call of %s for %+v, want calls of %s for one caller", c.verb, c.caller, verb)
			continue
		}
		if i == 0 {
			in, caller = c.in, c.caller
			continue
		}
		for k := range in {
			in[k] = merged(in[k], c.in[k])
		}
	}
	if len(calls) == 0 {
		t.Errorf("got no call of the service, want %s", verb)
	}
	return caller, in
}

func merged(a, b any) any {
	out := reflect.New(reflect.TypeOf(a)).Elem()
	out.Set(reflect.ValueOf(a))
	if out.Kind() != reflect.Struct {
		return b
	}
	for i := range out.NumField() {
		if f := reflect.ValueOf(b).Field(i); !f.IsZero() {
			out.Field(i).Set(f)
		}
	}
	return out.Interface()
}

// withoutStreams clears the writers that the server itself puts into a request.
func withoutStreams(in []any) []any {
	out := slices.Clone(in)
	for i := range out {
		if r, ok := out[i].(sandboxmcp.Request); ok {
			r.Stdout, r.Stderr = nil, nil
			out[i] = r
		}
	}
	return out
}

// TestEveryVerbCarriesItsInput: what a service receives is what the caller passed,
// and what the caller gets is what the service answered, field by field.
func TestEveryVerbCarriesItsInput(t *testing.T) {
	c, s, _ := pair(t)
	for _, v := range verbs() {
		t.Run(v.name, func(t *testing.T) {
			for _, ns := range []sandboxmcp.Namespace{"", "default", "team", sandboxmcp.EveryNamespace} {
				in, out, want, err := v.call(t.Context(), c, sandboxmcp.Caller{Namespace: ns, Actor: "an actor that does not travel"})
				if err != nil {
					t.Fatalf("got %v, want success", err)
				}
				asked := v.asks
				if asked == "" {
					asked = v.name
				}
				caller, got := received(t, s.take(), asked)
				wantCaller := sandboxmcp.Caller{Namespace: ns, Actor: "cli"}
				if v.nobody {
					wantCaller = sandboxmcp.Caller{}
				}
				if caller != wantCaller {
					t.Errorf("got the caller %+v, want %+v", caller, wantCaller)
				}
				if d := diff(in, withoutStreams(got)); d != "" {
					t.Fatalf("got another input than was passed (-passed +received):\n%s", d)
				}
				if d := diff(want, out); d != "" {
					t.Fatalf("got another answer than was given (-given +received):\n%s", d)
				}
			}
		})
	}
}

// TestEveryVerbIsListed holds verbs to the methods of Service and Client.
func TestEveryVerbIsListed(t *testing.T) {
	want := map[string]bool{}
	for m := range reflect.TypeFor[sandboxmcp.Service]().Methods() {
		want[m.Name] = true
	}
	for m := range reflect.TypeFor[*api.Client]().Methods() {
		want[m.Name] = true
	}
	delete(want, "Hello") // of the listener, not of the service
	delete(want, "Peer")
	delete(want, "Stop")
	delete(want, "Close")        // of its connections
	delete(want, "SetPatience")  // of the tests
	delete(want, "ExecuteAlike") // Execute under a condition, which alike_test.go checks
	got := map[string]bool{}
	for _, v := range verbs() {
		got[v.name] = true
	}
	if d := diff(slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got))); d != "" {
		t.Errorf("got other verbs than there are (-want +got):\n%s", d)
	}
}

// TestEveryFailureArrivesWhole: code, message, hint and fields of a failure reach
// the caller of every verb.
func TestEveryFailureArrivesWhole(t *testing.T) {
	c, s, _ := pair(t)
	s.refuse = func(call) error {
		return sandboxmcp.Errorf(sandboxmcp.CodeSessionBusy, "it is busy: é<").WithHint("wait").With("place", "here").WithCause(errors.New("a hidden cause"))
	}
	want := &sandboxmcp.Error{Code: sandboxmcp.CodeSessionBusy, Message: "it is busy: é<", Hint: "wait", Fields: map[string]any{"place": "here"}}
	for _, v := range verbs() {
		_, _, _, err := v.call(t.Context(), c, owner())
		if got, ok := errors.AsType[*sandboxmcp.Error](err); !ok {
			t.Errorf("%s: got %v, want %v", v.name, err, want)
		} else if d := diff(want, got); d != "" {
			t.Errorf("%s: got another failure (-want +got):\n%s", v.name, d)
		}
	}
}

// TestEveryFaultHidesItsCause: an error without a code becomes internal, and its
// text stays in the server.
func TestEveryFaultHidesItsCause(t *testing.T) {
	c, s, _ := pair(t)
	s.refuse = func(call) error { return errors.New("a hidden cause") }
	for _, v := range verbs() {
		_, _, _, err := v.call(t.Context(), c, owner())
		var got *sandboxmcp.Error
		if !errors.As(err, &got) || got.Code != sandboxmcp.CodeInternal || strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s: got %v, want internal without its cause", v.name, err)
		}
	}
	s.refuse = func(call) error { return errors.Join(errors.New("a step"), context.Canceled) }
	for _, v := range verbs() {
		if _, _, _, err := v.call(t.Context(), c, owner()); sandboxmcp.CodeOf(err) != sandboxmcp.CodeCancelled {
			t.Errorf("%s was cancelled: got %v, want cancelled", v.name, err)
		}
	}
}

// TestBadNamespaceIsRefusedByEveryVerb: a text that can be no namespace reaches no
// service.
func TestBadNamespaceIsRefusedByEveryVerb(t *testing.T) {
	c, s, _ := pair(t)
	for _, v := range verbs() {
		if v.nobody {
			continue
		}
		_, _, _, err := v.call(t.Context(), c, sandboxmcp.Caller{Namespace: "a b"})
		if got, want := sandboxmcp.CodeOf(err), sandboxmcp.CodeInvalidArgument; got != want {
			t.Errorf("%s: got %v, want %s", v.name, err, want)
		}
		if calls := s.take(); len(calls) != 0 {
			t.Errorf("%s: got the calls %+v, want none", v.name, calls)
		}
	}
}

// TestRequestVariantsArrive: what JSON would change or mix up arrives as it was.
func TestRequestVariantsArrive(t *testing.T) {
	c, s, _ := pair(t)
	for name, r := range map[string]sandboxmcp.Request{
		"Empty":                {},
		"NoDomain":             {Code: "x", AllowedDomains: []string{}},
		"OpenDomains":          {Code: "x", AllowedDomains: nil},
		"OneDomain":            {Code: "x", AllowedDomains: []string{"a.example.com"}, GrantDomains: true},
		"NoSecrets":            {Code: "x", NoSecrets: true},
		"Offline":              {Code: "x", Offline: true},
		"Modest":               {Code: "x", Modest: true, Session: &sandboxmcp.SessionSpec{Modest: true, Offline: true}},
		"CodeIsNotUTF8":        {Code: "x\xff\x00\xc3"},
		"CodeLooksReplaced":    {Code: "x\ufffd"},
		"EnvValueIsNotUTF8":    {Code: "x", Env: map[string]string{"A": "\xff", "B": "plain", "C": ""}},
		"EnvNameIsNotUTF8":     {Code: "x", Env: map[string]string{"\xfe": "plain", "\xff": "\xff"}},
		"CodeAndEnvAreNotUTF8": {Code: "\xff", Env: map[string]string{"A": "\xff"}},
		"StdinIsNotUTF8":       {Code: "x", Stdin: []byte("\xfe\x00")},
		"HTMLInCode":           {Code: "<a>&\u2028</a>"},
		"EmptySession":         {Code: "x", Session: &sandboxmcp.SessionSpec{}},
	} {
		t.Run(name, func(t *testing.T) {
			for verb, method := range map[string]func(*api.Client, context.Context, sandboxmcp.Caller, sandboxmcp.Request) (sandboxmcp.Result, error){
				"Execute": (*api.Client).Execute, "Start": (*api.Client).Start,
			} {
				if _, err := method(c, t.Context(), owner(), r); err != nil {
					t.Fatalf("%s: got %v, want success", verb, err)
				}
				_, got := received(t, s.take(), verb)
				want := r
				if verb == "Execute" { // the client names the request, to cancel it
					sent, _ := got[0].(sandboxmcp.Request)
					want.ID = sent.ID
				}
				if d := diff(list(want), withoutStreams(got)); d != "" {
					t.Errorf("%s: got another request (-passed +received):\n%s", verb, d)
				}
			}
		})
	}
}

// TestBridgeTellsNoValuesFromEmpty: nil values mean another thing than none.
func TestBridgeTellsNoValuesFromEmpty(t *testing.T) {
	c, s, _ := pair(t)
	empty := filled[sandboxmcp.Bridge]()
	clear(empty.Data)
	for _, b := range []sandboxmcp.Bridge{{From: "a", To: "b"}, empty} {
		if _, err := c.Bridge(t.Context(), owner(), b); err != nil {
			t.Fatal(err)
		}
		if _, got := received(t, s.take(), "Bridge"); diff(list(b), got) != "" {
			t.Errorf("got another bridge (-passed +received):\n%s", diff(list(b), got))
		}
	}
}
