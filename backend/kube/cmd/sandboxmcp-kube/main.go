// Command sandboxmcp-kube is the program sandboxmcp with the backend kube, whose sandboxes are pods of a
// Kubernetes cluster, and with object stores. Its commands are those of docs/cli.md.
package main

import (
	"context"
	"os"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"github.com/sandboxmcp/sandboxmcp/backend/kube"
	"github.com/sandboxmcp/sandboxmcp/backend/kube/objects"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/cli"
)

func main() {
	klog.SetLogger(logr.Discard()) // the client of the cluster would write to stderr; the backend reports its errors
	p := cli.Own()
	p.Backends = []app.AddBackend{kube.FromSettings}
	p.Objects = objects.Open
	os.Exit(cli.Main(context.Background(), p))
}
