//go:build programs

// Package policy names the program that enforces network policies.
package policy

import _ "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router"
