// Package deploy_test renders the chart, and applies it to a cluster.
package deploy_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"flag"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

var update = flag.Bool("update", false, "write manifests.yaml")

// render returns the manifests of the chart in the order of their files. Namespaces come first.
func render(t testing.TB, set map[string]any) []byte {
	t.Helper()
	c, err := loader.Load("chart")
	if err != nil {
		t.Fatal(err)
	}
	values, err := chartutil.ToRenderValues(c, set, chartutil.ReleaseOptions{Name: "sandboxmcp", Namespace: "sandboxmcp"}, nil)
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
	got := render(t, nil)
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

	// With a warm pool, whose pods the level restricted admits.
	image := cmp.Or(os.Getenv("KUBE_IMAGE"), "docker.io/sandboxmcp/sandbox:kube")
	pool := map[string]any{"name": "warm", "replicas": 1, "publicKey": base64.StdEncoding.EncodeToString(make([]byte, 32)), "memory": "64Mi", "work": "8Mi"}
	file := filepath.Join(t.TempDir(), "pool.yaml")
	if err := os.WriteFile(file, render(t, map[string]any{"sandboxes": map[string]any{"image": image, "pool": pool}}), 0o600); err != nil {
		t.Fatal(err)
	}
	kubectl("apply", "-f", file)
	t.Cleanup(func() {
		_ = exec.Command("kubectl", "--kubeconfig", os.Getenv("KUBECONFIG_E2E"), "delete", "--ignore-not-found", "--wait=false", "-f", file).Run()
	})
	kubectl("wait", "-n", "sandboxmcp-sandboxes", "--for=jsonpath={.status.readyReplicas}=1", "--timeout=2m", "sandboxwarmpool/warm")
}
