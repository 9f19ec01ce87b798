package engine_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/backend/process"
	"github.com/sandboxmcp/sandboxmcp/engine"
	"github.com/sandboxmcp/sandboxmcp/internal/testkit"
)

// skipExamples leaves the examples out on a machine that cannot run them: an example cannot skip
// itself.
func skipExamples(ctx context.Context) error {
	b := process.New(process.Config{})
	available := b.Capabilities(ctx).Available
	if err := b.Close(ctx); err != nil {
		return err
	}
	if _, err := exec.LookPath("python3"); available && err == nil || testkit.Demanded("userns") {
		return nil
	}
	return flag.Set("test.skip", "^Example")
}

// exampleEngine returns an engine in a directory of its own, and a function that ends both.
func exampleEngine(ctx context.Context) (*engine.Engine, func()) {
	dir, err := os.MkdirTemp("", "example")
	if err != nil {
		panic(err)
	}
	e, err := engine.New(ctx, engine.Config{StateDir: filepath.Join(dir, "state")})
	if err != nil {
		panic(err)
	}
	return e, func() { //nolint:contextcheck // Close has no context: it always ends what it began
		if err := e.Close(); err != nil {
			panic(err)
		}
		os.RemoveAll(dir)
	}
}

// A program runs once, and its output and the files that it made come back.
func Example() {
	ctx := context.Background()
	e, end := exampleEngine(ctx) // engine.Default(ctx) uses the state directory of this user
	defer end()

	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{
		Code: "open('sum.txt', 'w').write(str(6 * 7)); print('written')",
	})
	if err != nil {
		fmt.Println(sandboxmcp.CodeOf(err), err) // the product failed
		return
	}
	fmt.Print(res.Status, " ", res.ExitCode, " ", res.Stdout)
	fmt.Println(res.Artifacts[0].Name, res.Artifacts[0].SizeBytes)
	// Output:
	// completed 0 written
	// sum.txt 2
}

// A program that fails, or that a limit ends, is a result and no error.
func ExampleEngine_Execute_limits() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	for _, code := range []string{"raise SystemExit(3)", "while True: pass"} {
		res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{
			Code:   code,
			Limits: sandboxmcp.Limits{TimeoutSeconds: 1, MaxRAMMB: 128},
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(res.Status, res.ExitCode)
	}
	// Output:
	// failed 3
	// timed_out -1
}

// Output can be read while the program runs.
func ExampleEngine_Execute_streams() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	var stdout bytes.Buffer
	_, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{
		Language: sandboxmcp.Shell,
		Code:     "read name; echo hello $name",
		Stdin:    []byte("gopher\n"),
		Stdout:   &stdout,
	})
	fmt.Print(stdout.String(), err)
	// Output:
	// hello gopher
	// <nil>
}

// A session keeps variables and files until it is terminated.
func ExampleEngine_CreateSession() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	s, err := e.CreateSession(ctx, sandboxmcp.Caller{}, sandboxmcp.SessionSpec{ID: "analysis"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, code := range []string{"x = 41", "print(x + 1)"} {
		res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{SessionID: s.ID, Code: code})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Print(res.Stdout)
	}
	fmt.Println(e.TerminateSession(ctx, sandboxmcp.Caller{}, s.ID))
	// Output:
	// 42
	// <nil>
}

// A run in the background is looked up by its id.
func ExampleEngine_Start() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	begun, err := e.Start(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{Code: "print('done')"})
	if err != nil {
		fmt.Println(err)
		return
	}
	res, err := e.Lookup(ctx, sandboxmcp.Caller{}, sandboxmcp.Lookup{RequestID: begun.RequestID, Wait: 30 * time.Second})
	fmt.Print(res.Status, " ", res.Stdout, err)
	// Output:
	// completed done
	// <nil>
}

// A secret is in the environment of programs, and masked in their output.
func ExampleEngine_VaultAdd() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	if err := e.VaultAdd(ctx, e.Namespace(), "API_TOKEN", sandboxmcp.NewSecret("correct-horse"), time.Hour); err != nil {
		fmt.Println(err)
		return
	}
	res, err := e.Execute(ctx, sandboxmcp.Caller{}, sandboxmcp.Request{
		Code: "import os; t = os.environ['API_TOKEN']; print(len(t), t)",
	})
	fmt.Print(res.Stdout, err)
	// Output:
	// 13 ***REDACTED***
	// <nil>
}

// A program asks for a host, a person answers, and the host is open for later runs.
func ExampleEngine_RequestEgress() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	asked, err := e.RequestEgress(ctx, sandboxmcp.Caller{}, sandboxmcp.EgressAsk{Domain: "api.example.com", Reason: "to read prices"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(asked.Status)
	answer, err := e.DecideEgress(ctx, sandboxmcp.Caller{}, sandboxmcp.AccessDecision{ID: asked.ApprovalID})
	fmt.Println(answer.Status, err)
	// Output:
	// pending
	// approved <nil>
}

// A signature binds the name and the content of a file to the key of the state directory.
func ExampleEngine_Sign() {
	ctx := context.Background()
	e, end := exampleEngine(ctx)
	defer end()

	signature, err := e.Sign("report.txt", []byte("all is well"))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(e.Verify([]byte("all is well"), signature))
	fmt.Println(sandboxmcp.CodeOf(e.Verify([]byte("all is lost"), signature)))
	// Output:
	// <nil>
	// invalid_content
}
