package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

func (a *call) filesCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "files",
		Short: "Upload, list, read and remove files of a session",
		Long: `Uploads files into a session of a running server, lists, downloads and removes
them.`,
		Example: "  sandboxmcp files list analysis",
	}, a.filesUploadCommand(), a.filesListCommand(), a.filesReadCommand(), a.filesRemoveCommand())
}

// inSession sets the function that a command runs with the server that has the session.
func (a *call) inSession(cmd *cobra.Command, work func(ctx context.Context, cfg *config.Config, s app.Found, args []string) error) *cobra.Command {
	p := &app.Place{}
	withServer(cmd, p)
	return a.withSettings(a.withJSON(cmd), func(ctx context.Context, cfg *config.Config, args []string) error {
		s, err := a.Owner(ctx, cfg, *p, sandboxmcp.SessionID(args[0]))
		if err != nil {
			return err
		}
		return work(ctx, cfg, s, args[1:])
	})
}

func (a *call) filesUploadCommand() *cobra.Command {
	var name string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "upload SESSION FILE",
		Short: "Upload a file into a session",
		Long: `Copies a file into the working directory of a session, /mnt/data, and prints its
path there. --name gives it another name, which may be a path below /mnt/data;
missing directories are created.`,
		Example: `  sandboxmcp files upload analysis sales.csv`,
		Args:    takes("SESSION", "FILE"),
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the file in the session: `NAME`, or a path below /mnt/data")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace a file of that name")
	return a.inSession(cmd, func(ctx context.Context, cfg *config.Config, s app.Found, args []string) error {
		tell := func(err error) error {
			return readFailure("file "+sandboxmcp.Quote(args[0]), sandboxmcp.CodeUploadTooLarge, err)
		}
		src, err := openInput(ctx, args[0], cfg.Tools.MaxUploadBytes)
		if err != nil {
			return tell(err)
		}
		defer src.Close()
		if !cmd.Flags().Changed("name") {
			name = filepath.Base(args[0])
		}
		id, path, err := s.Upload(ctx, app.Me(cfg), sandboxmcp.Upload{SessionID: s.Session.ID, Name: name, Body: src, Size: src.size, Overwrite: overwrite})
		if unread, ok := errors.AsType[*inputError](err); ok {
			return tell(unread.err)
		}
		if sandboxmcp.CodeOf(err) == sandboxmcp.CodeFileExists {
			return sandboxmcp.AsError(err).WithHint("pass --overwrite to replace it, or --name for another name")
		}
		if err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"session_id": id, "path": path}, func() { a.print(app.Clean(path) + "\n") })
	})
}

func (a *call) filesListCommand() *cobra.Command {
	var deep bool
	cmd := &cobra.Command{
		Use:   "list SESSION",
		Short: "Show the files of a session",
		Long: `Shows the files and directories in the working directory of a session, /mnt/data. -R
also shows what is in the directories. The hash is that of a file directly in
/mnt/data, unless it is large. With --json, "artifacts" are these files and "entries"
is everything.`,
		Example: `  sandboxmcp files list analysis -R
  sandboxmcp files list analysis --json`,
		Args: takes("SESSION"),
	}
	cmd.Flags().BoolVarP(&deep, "recursive", "R", false, "show what is in directories, too")
	return a.inSession(cmd, func(ctx context.Context, cfg *config.Config, s app.Found, _ []string) error {
		files, err := s.SessionFiles(ctx, app.Me(cfg), s.Session.ID)
		if err != nil {
			return err
		}
		entries, err := s.SessionEntries(ctx, app.Me(cfg), s.Session.ID, deep)
		if err != nil {
			return err
		}
		if a.json {
			a.printJSON(map[string]any{"artifacts": append([]sandboxmcp.SessionFile{}, files...), "entries": append([]sandboxmcp.SessionEntry{}, entries...)})
			return nil
		}
		a.table(fileRows(files, entries))
		return nil
	})
}

// fileRows are the rows of files list. A directory ends with a slash.
func fileRows(files []sandboxmcp.SessionFile, entries []sandboxmcp.SessionEntry) [][]string {
	known := map[string]sandboxmcp.SessionFile{}
	for _, f := range files {
		known[f.Path] = f
	}
	rows := [][]string{{"PATH", "BYTES", "TYPE", "SHA-256"}}
	for _, e := range entries {
		row := []string{e.Path, "", string(e.Type), ""}
		switch f, ok := known[e.Path]; {
		case ok:
			row = []string{f.Path, strconv.FormatInt(f.SizeBytes, 10), f.MIMEType, f.SHA256}
		case e.Type == sandboxmcp.EntryDirectory:
			row[0] += "/"
		case e.Type == sandboxmcp.EntryFile:
			row[1] = strconv.FormatInt(e.SizeBytes, 10)
		}
		rows = append(rows, row)
	}
	return rows
}

// readAnswer is a file of a session as --json prints it.
type readAnswer struct {
	sandboxmcp.SessionFile
	Content []byte `json:"content_base64"`
}

func (a *call) filesReadCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "read SESSION PATH",
		Short: "Read a file of a session",
		Long: `Writes a file of a session to stdout or, with -o, into a local file. On a terminal
only text and colors are printed, elsewhere the bytes are unchanged. PATH is a path
below /mnt/data.`,
		Example: `  sandboxmcp files read analysis /mnt/data/plot.png -o plot.png`,
		Args:    takes("SESSION", "PATH"),
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "write the content into `FILE`")
	return a.inSession(cmd, func(ctx context.Context, cfg *config.Config, s app.Found, args []string) error {
		limit := int64(api.MaxFile)
		if cfg.Source("sandbox_max_artifact_read_bytes") != config.FromDefault {
			limit = min(limit, cfg.Tools.MaxArtifactReadBytes)
		}
		f, content, err := s.ReadFile(ctx, app.Me(cfg), s.Session.ID, args[0], limit)
		if err != nil {
			return err
		}
		if out != "" {
			if err := writeInto(out, content); err != nil {
				return err
			}
		}
		switch {
		case a.json:
			a.printJSON(readAnswer{f, content})
		case out != "":
		case a.terminal:
			a.printText(string(content))
		default:
			_, _ = a.Stdout.Write(content)
		}
		return nil
	})
}

// writeInto writes a local file. A regular file is replaced atomically; a device or
// another irregular file is written to.
func writeInto(path string, data []byte) error {
	if st, err := os.Stat(path); err == nil && !st.Mode().IsRegular() && !st.IsDir() {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			_, err = f.Write(data)
			if closed := f.Close(); err == nil {
				err = closed
			}
		}
		return outputFailure(path, err)
	}
	root, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return outputFailure(path, err)
	}
	dir := &outDir{filepath.Dir(path), root}
	defer dir.close()
	name := filepath.Base(path)
	if !fs.ValidPath(name) || name == "." {
		return outputFailure(path, fs.ErrInvalid)
	}
	return outputFailure(path, dir.put(name, data))
}

func outputFailure(path string, err error) error {
	if err == nil {
		return nil
	}
	return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "%s cannot be written", sandboxmcp.Quote(path)).
		WithHint("name a file that you can write to").WithCause(err)
}

func (a *call) filesRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rm SESSION PATH",
		Short:   "Remove a file of a session",
		Long:    `Removes a file of a session. PATH is a path below /mnt/data.`,
		Example: `  sandboxmcp files rm analysis /mnt/data/sales.csv`,
		Args:    takes("SESSION", "PATH"),
	}
	return a.inSession(cmd, func(ctx context.Context, cfg *config.Config, s app.Found, args []string) error {
		if err := s.RemoveFile(ctx, app.Me(cfg), s.Session.ID, args[0]); err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"removed": args[0]}, func() { a.print("removed " + app.Clean(args[0]) + "\n") })
	})
}
