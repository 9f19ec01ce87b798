package dockerapi

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// TestCalls: each call asks for what the API documents, and returns what the engine says.
func TestCalls(t *testing.T) {
	since, until := time.Unix(1700000000, 5), time.Unix(1700000001, 0)
	for name, c := range map[string]struct {
		call   func(context.Context, *Client) (any, error)
		want   string // method, path and query without the version
		body   string
		status int
		answer string
		result any
	}{
		"version": {
			func(ctx context.Context, a *Client) (any, error) {
				v, err := a.Version(ctx)
				return v.Components[0].Version, err
			},
			"GET /version", "", 200, `{"Components":[{"Name":"runc","Version":"1.3.6"}]}`, "1.3.6",
		},
		"info": {
			func(ctx context.Context, a *Client) (any, error) { return a.Info(ctx) },
			"GET /info", "", 200, `{"Runtimes":{"runc":{"path":"runc"}},"Architecture":"x86_64","SecurityOptions":["name=rootless"],"KernelVersion":"6.1","SystemTime":"2026-01-01T00:00:00Z","NCPU":2,"SwapLimit":true}`,
			Info{map[string]struct{}{"runc": {}}, "x86_64", []string{"name=rootless"}, "6.1", "2026-01-01T00:00:00Z", 2, true},
		},
		"create": {
			func(ctx context.Context, a *Client) (any, error) {
				return a.ContainerCreate(ctx, Container{Image: "i", Cmd: []string{}, HostConfig: HostConfig{MaskedPaths: []string{}, NanoCPUs: 1}})
			},
			"POST /containers/create", `{"Image":"i","Entrypoint":null,"Cmd":[],"Env":null,"AttachStdin":false,"AttachStdout":false,"AttachStderr":false,"OpenStdin":false,"StdinOnce":false,` +
				`"HostConfig":{"MaskedPaths":[],"LogConfig":{"Type":""},"Init":false,"NanoCpus":1}}`, 201, `{"Id":"c1"}`, "c1",
		},
		"start":           {func(ctx context.Context, a *Client) (any, error) { return nil, a.ContainerStart(ctx, "c1") }, "POST /containers/c1/start", "", 204, "", nil},
		"start once more": {func(ctx context.Context, a *Client) (any, error) { return nil, a.ContainerStart(ctx, "c1") }, "POST /containers/c1/start", "", 304, "", nil},
		"remove":          {func(ctx context.Context, a *Client) (any, error) { return nil, a.ContainerRemove(ctx, "c1") }, "DELETE /containers/c1?force=1&v=1", "", 204, "", nil},
		"limit":           {func(ctx context.Context, a *Client) (any, error) { return nil, a.ContainerLimitCPU(ctx, "c1", 5e8) }, "POST /containers/c1/update", `{"NanoCpus":500000000}`, 200, `{"Warnings":null}`, nil},
		"wait":            {func(ctx context.Context, a *Client) (any, error) { return a.ContainerWait(ctx, "c1", NotRunning) }, "POST /containers/c1/wait?condition=not-running", "", 200, `{"StatusCode":137,"Error":null}`, int64(137)},
		"inspect": {func(ctx context.Context, a *Client) (any, error) {
			s, err := a.ContainerInspect(ctx, "c1")
			return s.State.Pid, err
		}, "GET /containers/c1/json", "", 200, `{"State":{"Pid":4711}}`, 4711},
		"list":   {func(ctx context.Context, a *Client) (any, error) { return a.ContainerList(ctx, "l=1") }, "GET /containers/json?all=1&filters={\"label\":{\"l=1\":true}}", "", 200, `[{"Id":"c1","ImageID":"sha256:1","Labels":{"l":"1"}}]`, []Listed{{"c1", "sha256:1", map[string]string{"l": "1"}}}},
		"limits": {func(ctx context.Context, a *Client) (any, error) { return a.ContainerLimits(ctx, "c1") }, "GET /containers/c1/stats?one-shot=true&stream=false", "", 200, `{"memory_stats":{"limit":5},"pids_stats":{"limit":18446744073709551615}}`, Limits{5, 1<<64 - 1}},
		"images": {func(ctx context.Context, a *Client) (any, error) { return a.ImageList(ctx, "l") }, "GET /images/json?filters={\"label\":{\"l\":true}}", "", 200, `[{"Id":"sha256:1","RepoTags":null,"Size":7,"Created":9}]`, []Image{{ID: "sha256:1", Size: 7, Created: 9}}},
		"image": {func(ctx context.Context, a *Client) (any, error) {
			i, err := a.ImageInspect(ctx, "r:5/a?b%2e:1")
			return fmt.Sprint(i.ID, i.Config.Labels, i.Config.Volumes), err
		}, "GET /images/r:5/a?b%2e:1/json", "", 200, `{"Id":"sha256:1","Config":{"Labels":{"l":"1"},"Volumes":{"/vol":{}}}}`, "sha256:1map[l:1] map[/vol:{}]"},
		"image, no config": {func(ctx context.Context, a *Client) (any, error) {
			i, err := a.ImageInspect(ctx, "a")
			return i.ID, err
		}, "GET /images/a/json", "", 200, `{"Id":"sha256:1","Config":null}`, "sha256:1"},
		"tag":        {func(ctx context.Context, a *Client) (any, error) { return nil, a.ImageTag(ctx, "sha256:1", "r:5/a:2") }, "POST /images/sha256:1/tag?repo=r:5/a&tag=2", "", 201, "", nil},
		"tag latest": {func(ctx context.Context, a *Client) (any, error) { return nil, a.ImageTag(ctx, "sha256:1", "r:5/a") }, "POST /images/sha256:1/tag?repo=r:5/a&tag=latest", "", 201, "", nil},
		"import": {
			func(ctx context.Context, a *Client) (any, error) {
				return a.ImageImport(ctx, strings.NewReader("tar"), []string{"USER 1", "LABEL a=b"}, "m")
			},
			"POST /images/create?changes=USER 1&changes=LABEL a=b&fromSrc=-&message=m", "tar", 200, `{"status":"begun"}` + "\n" + `{"status":"sha256:1"}`, "sha256:1",
		},
		"events": {
			func(ctx context.Context, a *Client) (any, error) {
				return count(a.Events(ctx, since, until, map[string]string{"type": "container", "container": "c1"}))
			},
			`GET /events?filters={"container":{"c1":true},"type":{"container":true}}&since=1700000000.000000005&until=1700000001.000000000`, "", 200, `{"Type":"container"}{"Type":"container"}`, 2,
		},
		"events from now on": {
			func(ctx context.Context, a *Client) (any, error) {
				return count(a.Events(ctx, time.Time{}, until, nil))
			},
			`GET /events?filters={}&until=1700000001.000000000`, "", 200, ``, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := make(chan [2]string, 1)
			a := (&engine{version: "1.44", handler: func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				uri := r.Method + " " + strings.TrimPrefix(r.URL.Path, "/v1.44")
				if q, _ := url.QueryUnescape(r.URL.RawQuery); q != "" {
					uri += "?" + q
				}
				if isJSON := r.Header.Get("Content-Type") == "application/json"; isJSON != strings.HasPrefix(string(body), "{") {
					t.Errorf("got JSON %t, want it for JSON alone", isJSON)
				}
				got <- [2]string{uri, string(body)}
				w.WriteHeader(c.status)
				_, _ = io.WriteString(w, c.answer)
			}}).serve(t)
			result, err := c.call(t.Context(), a)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([2]string{c.want, c.body}, <-got); diff != "" {
				t.Errorf("request (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.result, result); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

// TestAnswersThatSayFailure: engines tell some failures with status 200.
func TestAnswersThatSayFailure(t *testing.T) {
	importing := func(a *Client) error {
		_, err := a.ImageImport(t.Context(), strings.NewReader(""), nil, "")
		return err
	}
	for name, c := range map[string]struct {
		call         func(*Client) error
		answer, want string
	}{
		"wait":                     {func(a *Client) error { _, err := a.ContainerWait(t.Context(), "x", Removed); return err }, `{"StatusCode":0,"Error":{"Message":"busy"}}`, "busy"},
		"create names nothing":     {func(a *Client) error { _, err := a.ContainerCreate(t.Context(), Container{}); return err }, `{}`, "does not name the container"},
		"inspect names nothing":    {func(a *Client) error { _, err := a.ImageInspect(t.Context(), "x"); return err }, `{}`, "does not tell the id"},
		"import":                   {importing, `{"status":"x"}{"errorDetail":{"message":"no space"}}`, "the engine answers: no space"},
		"import of an old engine":  {importing, `{"error":"no space"}`, "the engine answers: no space"},
		"import names nothing":     {importing, `{"status":"x"}`, "does not name the image"},
		"import breaks off":        {importing, `{"status":"sha256:1"}{"sta`, "read the answer of the import"},
		"attach without a stream":  {func(a *Client) error { _, err := a.ContainerAttach(t.Context(), "x"); return err }, "", "no stream"},
		"an answer of another API": {func(a *Client) error { _, err := a.Info(t.Context()); return err }, `<html>`, "/info cannot be read"},
	} {
		if err := c.call(answering(t, http.StatusOK, c.answer)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want an error with %q", name, err, c.want)
		}
	}
}

// TestNamesAreNoPaths: ids and names that would lead to another path are refused before an engine is asked.
func TestNamesAreNoPaths(t *testing.T) {
	a := client(t, Config{Host: "unix://" + socket(t)})
	for _, id := range []string{"", ".", "..", "a/b", "a?b", "a%2fb", "../info", "a b", "ä"} {
		if err := a.ContainerStart(t.Context(), id); err == nil || IsUnreachable(err) {
			t.Errorf("container %q: got %v, want that it is refused", id, err)
		}
		if _, err := a.ContainerAttach(t.Context(), id); err == nil || IsUnreachable(err) {
			t.Errorf("attach to %q: got %v, want that it is refused", id, err)
		}
	}
	for _, name := range []string{"", "/", "..", ".", "a//b", "a/../b", "../containers/x", "a/", "a/."} {
		if _, err := a.ImageInspect(t.Context(), name); err == nil || IsUnreachable(err) {
			t.Errorf("image %q: got %v, want that it is refused", name, err)
		}
		if err := a.ImageTag(t.Context(), name, "x"); err == nil || IsUnreachable(err) {
			t.Errorf("tag of %q: got %v, want that it is refused", name, err)
		}
	}
	for _, name := range []string{"", "a@sha256:1"} {
		if err := a.ImageTag(t.Context(), "sha256:1", name); err == nil || IsUnreachable(err) {
			t.Errorf("tag %q: got %v, want that it is refused", name, err)
		}
	}
}
