// Package sandboxmcp defines the types of the product's API: the requests of callers that
// run untrusted code in a sandbox, and the results.
//
// The engine executes a [Request] and returns a [Result]. A program that failed is not an
// error: the Result has its [Status] and exit code. A failure of the product itself is an
// [*Error] with a [Code] from a closed list, and there is no Result then.
//
// The JSON names of the types are those of the MCP tools, of the command line with --json
// and of the HTTP API. The package imports the standard library only.
//
// To run a program, see package engine:
//
//	e, err := engine.Default(ctx)
//	if err != nil { … }
//	defer e.Close()
//	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print(6*7)"})
//
// # Compatibility
//
// docs/api.txt lists what this package and package engine export, and a test fails if a line
// of it is no longer true. Structs may gain fields, so write literals with field names.
// Interfaces may gain methods, so call them and do not implement them. Codes, events and
// statuses may be added, so a switch over them needs a default. Package backend may still
// change in any way.
package sandboxmcp
