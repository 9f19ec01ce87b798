package process

import "github.com/sandboxmcp/sandboxmcp"

// elsewhereHint is what helps on a system without a Linux kernel.
const elsewhereHint = "run sandboxmcp on Linux: in a virtual machine, or in Docker with the image of its release"

// elsewhere returns the error of every run on a system that is not Linux.
func elsewhere(system string) *sandboxmcp.Error {
	return sandboxmcp.Errorf(sandboxmcp.CodeIsolationUnavailable, "the process backend needs Linux; this is %s", system).WithHint(elsewhereHint)
}
