//go:build programs

// Package control names the programs that build.sh builds besides its own.
package control

import _ "sigs.k8s.io/agent-sandbox/cmd/agent-sandbox-controller"
