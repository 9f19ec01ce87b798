package app

import (
	"runtime/debug"
)

// buildVersion is set by the build. It is empty after `go install`, which records the
// module's version.
var buildVersion string

// Version returns the version of the build, or "dev" if it has none.
func Version() string {
	if buildVersion != "" {
		return buildVersion
	}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" && b.Main.Version != "(devel)" {
		return b.Main.Version
	}
	return "dev"
}
