// Package sandboxmcp is the vocabulary of the product: what a caller asks for
// and what it gets back when code that nobody should trust is run in a sandbox.
//
// A [Request] goes down through the engine once and one [Result] comes up. A
// program that failed is data: its [Status] and exit code stand in the Result.
// Only a failure of our own is an error, always an [*Error] with a [Code] from
// one closed list. Never both.
//
// The types carry their JSON names, which are the names that the MCP tools, the
// command line with --json and the REST door print. The package imports the
// standard library only, and nothing of this module.
//
// To run something, see package engine:
//
//	e, err := engine.Default(ctx)
//	if err != nil { … }
//	defer e.Close()
//	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print(6*7)"})
package sandboxmcp
