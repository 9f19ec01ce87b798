package kube

import (
	"slices"
	"strings"
	"testing"

	authorization "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ktesting "k8s.io/client-go/testing"

	"github.com/sandboxmcp/sandboxmcp"
)

// TestRightsThatAreMissingAreNamed: doctor names each right that the server's account does not have.
func TestRightsThatAreMissingAreNamed(t *testing.T) {
	b, api := newFake(t, runs)
	b.cfg.Image = "" // no pod is tried
	b.cfg.Pool, b.cfg.RuntimeClass, b.cfg.Connect = "pool", "gvisor", ConnectAPI
	refused := map[string]bool{"pods/ watch": true, "pods/ delete": true, "nodes/ get": true}
	api.PrependReactor("create", "selfsubjectaccessreviews", func(a ktesting.Action) (bool, runtime.Object, error) {
		r := a.(ktesting.CreateAction).GetObject().(*authorization.SelfSubjectAccessReview)
		at := r.Spec.ResourceAttributes
		r.Status.Allowed = !refused[at.Resource+"/"+at.Subresource+" "+at.Verb]
		if (at.Resource == "nodes") != (at.Namespace == "") {
			t.Errorf("%s: got the namespace %q", at.Resource, at.Namespace)
		}
		return true, r, nil
	})
	list := b.Checks(t.Context())
	find := func(name string) sandboxmcp.Check {
		i := slices.IndexFunc(list, func(c sandboxmcp.Check) bool { return c.Name == "kube rights: "+name })
		if i < 0 {
			t.Fatalf("got %+v, want the rights %s", list, name)
		}
		return list[i]
	}
	if c := find("pods"); c.OK || !c.Needed || !strings.Contains(c.Detail, "may not watch, delete") || c.Fix == "" {
		t.Errorf("got %+v, want that watch and delete are missing", c)
	}
	if c := find("nodes"); c.OK || c.Needed || !strings.Contains(c.Detail, "the tier is L1") {
		t.Errorf("got %+v, want that the tier is L1", c)
	}
	for _, name := range []string{"pods/proxy", "sandboxclaims", "sandboxwarmpools", "sandboxtemplates"} {
		if c := find(name); !c.OK {
			t.Errorf("got %+v, want it allowed", c)
		}
	}
}
