package app

import (
	"runtime/debug"
)

// buildVersion is set by the build; empty in one by `go install`, which knows
// the module's version itself.
var buildVersion string

// Version is that of the build; "dev" for one without.
func Version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "dev"
}
