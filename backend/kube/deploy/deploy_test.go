// Package deploy_test renders the chart, and applies it to a cluster.
package deploy_test

import (
	"bytes"
	"flag"
	"os"
	"os/exec"
	"path"
	"slices"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

var update = flag.Bool("update", false, "write manifests.yaml")

// render returns the manifests of the chart in the order of their files. Namespaces come first.
func render(t testing.TB) []byte {
	t.Helper()
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(c, nil, chartutil.ReleaseOptions{Name: "sandboxmcp", Namespace: "sandboxmcp"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(c, values)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for name := range files {
		names = append(names, name)
	}
	slices.Sort(names)
	out := []byte("# The chart with its usual values. Made by its test: go test -update.\napiVersion: v1\nkind: Namespace\nmetadata:\n  name: sandboxmcp\n")
	for _, name := range names {
		out = append(out, "---\n# "+path.Base(name)+"\n"+files[name]...)
	}
	return out
}

// TestManifests: the plain manifests are those of the chart.
func TestManifests(t *testing.T) {
	got := render(t)
	if *update {
		if err := os.WriteFile("manifests.yaml", got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("manifests.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("manifests.yaml is not what the chart renders; run go test -update")
	}
}

// TestApply: a cluster takes the manifests, first as a trial.
func TestApply(t *testing.T) {
	if os.Getenv("KUBECONFIG_E2E") == "" {
		t.Skip("KUBECONFIG_E2E names no cluster")
	}
	kubectl := func(args ...string) {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "kubectl", append([]string{"--kubeconfig", os.Getenv("KUBECONFIG_E2E")}, args...)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
	kubectl("create", "namespace", "sandboxmcp")
	kubectl("create", "namespace", "sandboxmcp-sandboxes")
	t.Cleanup(func() {
		_ = exec.Command("kubectl", "--kubeconfig", os.Getenv("KUBECONFIG_E2E"), "delete", "--ignore-not-found", "--wait=false", "-f", "manifests.yaml").Run()
	})
	kubectl("apply", "--dry-run=server", "-f", "manifests.yaml")
	kubectl("apply", "-f", "manifests.yaml")
}
