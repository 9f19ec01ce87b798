package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/image"
)

func (a *call) imageCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "image",
		Short: "Make the images that sandboxes run in",
		Long: `Makes root file systems with Python, Node.js and a shell from Debian's packages,
without a registry of images: for a container engine, or for the process backend.`,
		Example: "  sandboxmcp image build",
	}, a.imageBuildCommand(), a.imageListCommand())
}

func (a *call) imageBuildCommand() *cobra.Command {
	o := image.Order{}
	var about []string
	for _, s := range image.Sets() {
		about = append(about, "  "+s.Name+strings.Repeat(" ", 10-len(s.Name))+s.About)
	}
	cmd := &cobra.Command{
		Use:   "build [SET]",
		Short: "Make an image",
		Long: `Makes an image with mmdebstrap and imports it into the engine that DOCKER_HOST
names, or into Docker's own. It takes some minutes and 3 GB below TMPDIR. The same
packages give the same bytes. SET is one of

` + strings.Join(about, "\n") + `

The set science, which is the default, is named ` + image.Name + ` and
` + image.Compatible + `, unless another image has that name.

With --rootfs or --tar the image goes there, and into the engine only if --name is
given. Sandboxes of the process backend use a directory that the setting rootfs
names. Its files are not updated: make a new one when Debian has new packages.`,
		Example: `  sandboxmcp image build
  sandboxmcp image build --rootfs /var/lib/sandboxmcp-root
  SANDBOXMCP_ROOTFS=/var/lib/sandboxmcp-root sandboxmcp run -c 'import pandas'`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 1 {
				return app.Usage(strconv.Quote(args[1]) + " is one argument too many")
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.StringVar(&o.RootFS, "rootfs", "", "make the directory `DIR` for the process backend")
	f.StringVar(&o.Tar, "tar", "", "write the root file system to the tar `FILE`")
	f.StringArrayVar(&o.Names, "name", nil, "import the image as `NAME`; may be repeated")
	f.StringVar(&o.Mirror, "mirror", "", "take the packages from the Debian mirror `URL`")
	a.withJSON(cmd)
	return a.does(cmd, func(ctx context.Context, args []string) (err error) {
		o.Set = image.Sets()[0]
		if len(args) > 0 {
			if o.Set, err = image.FindSet(args[0]); err != nil {
				return err
			}
		}
		o.Env, o.Say = a.Env, func(text string) { a.Progress(app.Clean(text)) }
		r, err := image.Build(ctx, o)
		if err != nil {
			return err
		}
		return a.answer(a.json, r, func() { a.showBuilt(r) })
	})
}

func (a *call) showBuilt(r image.Report) {
	a.print(fmt.Sprintf("%s: %d MiB in %.0f s, sha256:%s\n", r.Set, r.Bytes>>20, r.Seconds, r.SHA256))
	for _, name := range r.Names {
		a.print("image " + app.Clean(name) + "\n")
	}
	for _, name := range r.Kept {
		a.Say(name + " is another image and stays; --name " + name + " replaces it")
	}
	if r.Tar != "" {
		a.print("tar " + app.Clean(r.Tar) + "\n")
	}
	if r.RootFS != "" {
		a.print("directory " + app.Clean(r.RootFS) + "; set rootfs, or SANDBOXMCP_ROOTFS, to it\n")
	}
}

func (a *call) imageListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the images in the engine",
		Long: `Shows the images that "image build", or the Dockerfile of the sources, has put into
the engine that DOCKER_HOST names, or into Docker's own.`,
		Example: `  sandboxmcp image list --json`,
		Args:    takes(),
	}
	return a.does(a.withJSON(cmd), func(ctx context.Context, _ []string) error {
		e, err := image.Connect(ctx, a.Env)
		if err != nil {
			return err
		}
		all, err := e.Images(ctx)
		if err != nil {
			return err
		}
		return a.answer(a.json, map[string]any{"images": all}, func() {
			rows := [][]string{{"IMAGE", "SET", "MIB", "CREATED", "ID"}}
			for _, i := range all {
				id := strings.TrimPrefix(i.ID, "sha256:")
				rows = append(rows, []string{strings.Join(i.Names, " "), i.Set, strconv.FormatInt(i.Bytes>>20, 10), clock(i.Created), id[:min(len(id), 12)]})
			}
			a.table(rows)
		})
	})
}
