package cli

import (
	"context"
	"encoding/base64"
	"slices"
	"strconv"
	"strings"

	"github.com/sandboxmcp/sandboxmcp"
	"github.com/sandboxmcp/sandboxmcp/internal/api"
	"github.com/sandboxmcp/sandboxmcp/internal/app"
	"github.com/sandboxmcp/sandboxmcp/internal/config"
)

// elsewhere reports whether a server runs the program, and not this process.
func (o *runOptions) elsewhere() bool { return o.session != "" || o.background }

// checkPlace refuses flags that exclude each other.
func (o *runOptions) checkPlace(given func(string) bool) error {
	if given("session") {
		if _, err := sandboxmcp.ParseSessionID(o.session); err != nil {
			return err
		}
	}
	switch {
	case o.place.Server != "" && !o.elsewhere():
		return app.Usage("--server needs --session or --background")
	case o.background && o.out != "":
		return app.Usage("--out does not go with --background; get the files with `sandboxmcp artifacts REQUEST_ID --out DIR`")
	}
	return nil
}

// runElsewhere runs the request in a server: the one that has the session, or else one that
// creates it.
func (a *call) runElsewhere(ctx context.Context, o *runOptions, cfg *config.Config, req sandboxmcp.Request) error {
	work := func(c *api.Client) error {
		if o.background {
			a.asked = o.wrote(req)
			return a.startIn(ctx, c, app.Me(cfg), req)
		}
		return a.runIn(ctx, o, cfg, c, req)
	}
	if o.session == "" {
		return a.InHome(ctx, cfg, o.place, work)
	}
	req.SessionID, req.Display = sandboxmcp.SessionID(o.session), sandboxmcp.DisplayResults
	s, err := a.Owner(ctx, cfg, o.place, req.SessionID)
	if sandboxmcp.CodeOf(err) == sandboxmcp.CodeSessionNotFound { // the session must be created
		return a.InHome(ctx, cfg, o.place, work)
	}
	if err != nil {
		return err
	}
	if o.language == "" && baseName(o.script) == "" && !strings.HasPrefix(req.Code, "#!") {
		req.Language = s.Session.Language
	}
	return work(s.Client)
}

// startIn starts the request in the background of a server.
func (a *call) startIn(ctx context.Context, c *api.Client, who sandboxmcp.Caller, req sandboxmcp.Request) error {
	res, err := c.Start(ctx, who, req)
	if err != nil {
		return err
	}
	if a.json {
		a.printJSON(res)
		return nil
	}
	a.print(string(res.RequestID) + "\n")
	if a.terminal {
		a.Say("it runs in the background; see `sandboxmcp artifacts " + string(res.RequestID) + "`")
	}
	return nil
}

// runIn runs the request in a server and passes on its output as it arrives.
func (a *call) runIn(ctx context.Context, o *runOptions, cfg *config.Config, c *api.Client, req sandboxmcp.Request) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	endOutput := a.giveThrough(&req, cancel)
	dir, err := openOut(o.out)
	if err != nil {
		return err
	}
	defer dir.close()
	a.asked = o.wrote(req)
	res, err := c.Execute(ctx, app.Me(cfg), req)
	endOutput()
	ok, err := a.ended(ctx, res, err)
	if !ok {
		return err
	}
	show := func(e app.Engine) error {
		if dir != nil && (!a.copyOut(ctx, e, dir, res) || !a.drawOut(dir, res)) {
			a.status = exitOurs
		}
		if a.json {
			res.Note = a.Paste(res.Note)
			a.printJSON(a.filled(ctx, e, res))
			return nil
		}
		a.showResults(res, dir != nil)
		a.remark(res)
		a.sayKept(res, dir != nil)
		return nil
	}
	if api.Complete(res) || dir == nil && !a.json {
		return show(nil)
	}
	return a.WithEngine(ctx, cfg, show) // the content of large files is only in the state directory
}

// filled returns the result with the content of its files, if that is available.
func (a *call) filled(ctx context.Context, e app.Engine, res sandboxmcp.Result) sandboxmcp.Result {
	if e == nil {
		return res
	}
	res.Artifacts = slices.Clone(res.Artifacts)
	for i, f := range res.Artifacts {
		if len(f.ContentB64) > 0 || f.SizeBytes == 0 {
			continue
		}
		kept, err := e.ArtifactContent(ctx, sandboxmcp.Caller{Namespace: res.Namespace}, res.RequestID, f.Name)
		if err != nil {
			a.failure(sandboxmcp.AsError(err))
			continue
		}
		res.Artifacts[i].ContentB64 = kept.ContentB64
	}
	return res
}

// showResults prints the value of the last expression, as a REPL does. If pictures were
// displayed but not written to files, it prints how many.
func (a *call) showResults(res sandboxmcp.Result, drawn bool) {
	pictures := 0
	for _, r := range res.Results {
		for _, p := range pictureTypes {
			if _, ok := r[p.mime].(string); ok {
				pictures++
				break
			}
		}
		if main, _ := r["is_main_result"].(bool); !main {
			continue
		}
		if text, ok := r["text/plain"].(string); ok {
			a.printText(text)
		}
	}
	if pictures > 0 && !drawn {
		a.Say(counted(int64(pictures), "picture") + " displayed (--out DIR writes pictures)")
	}
}

// pictureTypes are the MIME types of results that --out writes, with their file
// extensions. Binary types are in base64.
var pictureTypes = []struct {
	mime, ext string
	text      bool
}{
	{"image/png", ".png", false},
	{"image/jpeg", ".jpg", false},
	{"image/svg+xml", ".svg", true},
}

// drawOut writes the pictures of a result as result-1.png and so on, beside the program's
// files.
func (a *call) drawOut(dir *outDir, res sandboxmcp.Result) bool {
	whole := true
	taken := map[string]bool{}
	for _, f := range res.Artifacts {
		taken[f.Name] = true
	}
	for i, r := range res.Results {
		for _, p := range pictureTypes {
			text, ok := r[p.mime].(string)
			if !ok {
				continue
			}
			name := "result-" + strconv.Itoa(i+1)
			for taken[name+p.ext] {
				name += "-shown"
			}
			taken[name+p.ext] = true
			data, err := []byte(text), error(nil)
			if !p.text {
				data, err = base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
			}
			if err == nil {
				err = dir.write(name+p.ext, data)
			}
			if err != nil {
				whole = false
				a.Say("picture " + name + p.ext + " is not written: " + err.Error())
			}
		}
	}
	return whole
}
