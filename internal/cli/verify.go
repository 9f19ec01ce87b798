package cli

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/plainfile"
	"github.com/sandboxmcp/sandboxmcp/internal/sign"
)

const (
	maxReceipt = 64 << 20 // a receipt, or a result that contains one
	maxKey     = 64 << 10
)

type verifyOptions struct {
	receipt string
	key     string
}

func (a *call) verifyCommand() *cobra.Command {
	o := &verifyOptions{}
	cmd := &cobra.Command{
		Use:   "verify FILE SHA256 | --receipt FILE",
		Short: "Check a file's hash or a receipt's signature",
		Long: `Compares a file with a SHA-256, or checks the signature of a receipt. The FILE of
--receipt holds a receipt, or a result in JSON that contains one. Of a result, the
output, status, exit code, files and isolation are also compared with what was
signed, and differences are named. Its displayed results, metadata, usage and
duration are not signed: the members of the FILE of which that is true are listed.
A FILE with members that no result has is refused. The key is that of the state
directory, or the one of --key.

Prints VERIFIED and exits with 0, or MISMATCH and exits with 1. For a receipt that
verifies it prints what ran, behind which walls and with which outcome.`,
		Example: `  sandboxmcp verify chart.png 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  sandboxmcp run --json hello.py > result.json && sandboxmcp verify --receipt result.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.receipt != "" && len(args) > 0:
				return app.Usage("--receipt replaces FILE and SHA256")
			case o.receipt != "":
				return nil
			case o.key != "":
				return app.Usage("--key needs --receipt")
			}
			return takes("FILE", "SHA256")(cmd, args)
		},
	}
	cmd.Flags().StringVar(&o.receipt, "receipt", "", "check the receipt in `FILE`; - is stdin")
	cmd.Flags().StringVar(&o.key, "key", "", "use the public key in the PEM `FILE`")
	a.withConfig(a.withJSON(cmd))
	return a.does(cmd, func(ctx context.Context, args []string) error {
		if o.receipt != "" {
			return a.verifyReceipt(ctx, o)
		}
		return a.verifyFile(ctx, args[0], args[1])
	})
}

func (a *call) verifyFile(ctx context.Context, path, want string) error {
	want = strings.ToLower(want)
	if raw, err := hex.DecodeString(want); err != nil || len(raw) != sha256.Size {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s is not a SHA-256", sandboxmcp.Quote(want)).WithHint("give 64 hexadecimal digits")
	}
	got, err := hashFile(ctx, path)
	if err != nil {
		return readFailure("file "+sandboxmcp.Quote(path), sandboxmcp.CodeFileTooLarge, err)
	}
	a.verdict(got == want, map[string]any{"file": path, "sha256": got, "expected": want}, "")
	return nil
}

func hashFile(ctx context.Context, path string) (string, error) {
	f, err := plainfile.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	if _, err := io.Copy(h, &untilDone{ctx, f}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// untilDone is a reader that fails once its context has ended.
type untilDone struct {
	ctx context.Context //nolint:containedctx // lives only within hashFile
	r   io.Reader
}

// Read reads unless the context has ended.
func (u *untilDone) Read(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.r.Read(p)
}

// verdict prints VERIFIED or MISMATCH and sets the exit status.
func (a *call) verdict(good bool, fields map[string]any, why string) {
	word := "VERIFIED"
	if !good {
		word, a.status = "MISMATCH", 1
	}
	if a.json {
		fields["verified"] = good
		if why != "" {
			fields["reason"] = why
		}
		a.printJSON(fields)
		return
	}
	a.print(word + "\n")
	if why != "" {
		a.Say(why)
	}
}

func (a *call) verifyReceipt(ctx context.Context, o *verifyOptions) error {
	public, err := a.publicKey(o)
	if err != nil {
		return err
	}
	receipt, result, err := a.readReceipt(ctx, o.receipt)
	if err != nil {
		return err
	}
	p, err := sign.Verify(receipt, public)
	if err != nil {
		a.verdict(false, map[string]any{"receipt": nil, "key": sign.KeyID(public)}, err.Error())
		return nil //nolint:nilerr // a receipt that does not verify is a result, not a failure
	}
	fields := map[string]any{"receipt": p, "key": sign.KeyID(public)}
	if differ := result.Differences(p); len(differ) > 0 {
		fields["differs"] = differ
		a.verdict(false, fields, "the receipt is valid, but the result differs from it in: "+strings.Join(differ, ", "))
		return nil
	}
	unsigned := result.Unsigned()
	if len(unsigned) > 0 {
		fields["unsigned"] = unsigned
	}
	a.verdict(true, fields, "")
	if !a.json {
		a.showPredicate(p, unsigned)
	}
	return nil
}

func (a *call) publicKey(o *verifyOptions) (ed25519.PublicKey, error) {
	if o.key != "" {
		data, err := plainfile.Read(o.key, maxKey)
		if err != nil {
			return nil, readFailure("key "+sandboxmcp.Quote(o.key), sandboxmcp.CodeFileTooLarge, err)
		}
		public, err := sign.ParsePublicKey(data)
		if err != nil {
			return nil, sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s holds no public key", sandboxmcp.Quote(o.key)).
				WithHint("name a file like " + sign.PublicFile + " of a state directory").WithCause(err)
		}
		return public, nil
	}
	cfg, err := a.Load()
	if err != nil {
		return nil, err
	}
	public, err := sign.PublicKey(cfg.StateDir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, sandboxmcp.Errorf(sandboxmcp.CodeNotFound, "state directory %s has no key yet", sandboxmcp.Quote(cfg.StateDir)).
			WithHint("name the public key with --key")
	case err != nil:
		return nil, fmt.Errorf("verify receipt: %w", err)
	}
	return public, nil
}

// keyIfAny is like publicKey, but returns nil if the state directory has no key yet.
func (a *call) keyIfAny(o *verifyOptions) (ed25519.PublicKey, error) {
	public, err := a.publicKey(o)
	if o.key == "" && sandboxmcp.CodeOf(err) == sandboxmcp.CodeNotFound {
		return nil, nil
	}
	return public, err
}

// readReceipt reads a receipt, or a result together with its receipt.
func (a *call) readReceipt(ctx context.Context, path string) (r sandboxmcp.Receipt, result sign.Document, err error) {
	what, data := "receipt "+sandboxmcp.Quote(path), []byte(nil)
	if path == "-" {
		what = "the receipt on stdin"
		data, err = readAll(ctx, a.Stdin, maxReceipt)
	} else {
		data, err = plainfile.Read(path, maxReceipt)
	}
	if err != nil {
		return r, nil, readFailure(what, sandboxmcp.CodeFileTooLarge, err)
	}
	return sign.ReadReceipt(what, data)
}

// wallList returns the walls of a sandbox as text.
func wallList(walls []string) string {
	if len(walls) == 0 {
		return "none"
	}
	return strings.Join(walls, ", ")
}

// showPredicate prints what a receipt states, and which members of the result beside it were not signed.
func (a *call) showPredicate(p sandboxmcp.ReceiptPredicate, unsigned []string) {
	walls := "none"
	if p.Isolation != nil {
		walls = string(p.Isolation.Tier) + " on " + p.Isolation.Backend + ": " + wallList(p.Isolation.Walls)
	}
	rows := [][]string{
		{"request", string(p.RequestID)},
		{"namespace", string(p.Namespace)},
		{"language", string(p.Language)},
		{"code", "sha256 " + p.CodeSHA256},
		{"outcome", fmt.Sprintf("%s, exit code %d", p.Status, p.ExitCode)},
		{"ended", p.EndedAt.UTC().Format(time.RFC3339)},
		{"walls", walls},
	}
	for _, f := range p.Artifacts {
		rows = append(rows, []string{"file", f.Path + " sha256 " + f.SHA256})
	}
	if len(unsigned) > 0 {
		rows = append(rows, []string{"not signed", strings.Join(unsigned, ", ")})
	}
	a.table(rows)
}
