package clients_test

import (
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
)

// geminiRequest is what Gemini CLI asks of its model.
type geminiRequest struct {
	Contents []struct {
		Role  string       `json:"role"`
		Parts []geminiPart `json:"parts"`
	} `json:"contents"`
	Tools []struct {
		FunctionDeclarations []struct {
			Name        string `json:"name"`
			Description string `json:"description"`
			Schema      any    `json:"parametersJsonSchema"`
		} `json:"functionDeclarations"`
	} `json:"tools"`
}

// geminiPart is a piece of a message.
type geminiPart struct {
	Text         string          `json:"text"`
	FunctionCall json.RawMessage `json:"functionCall"`
	Response     *struct {
		ID       string `json:"id"`
		Response struct {
			Output *string `json:"output"`
			Error  *string `json:"error"`
		} `json:"response"`
	} `json:"functionResponse"`
	Data *struct {
		Data string `json:"data"`
		MIME string `json:"mimeType"`
	} `json:"inlineData"`
}

// geminiModels plays generateContent, as a stream or not, and countTokens.
func geminiModels(m *model, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	_, verb, _ := strings.Cut(r.URL.Path, ":")
	var req geminiRequest
	if err != nil || json.Unmarshal(body, &req) != nil {
		verb = ""
	}
	switch verb {
	case "countTokens":
		reply(w, false, map[string]any{"totalTokens": 1})
		return
	case "generateContent", "streamGenerateContent":
	default:
		m.strays("%s %s", r.Method, r.URL)
		http.NotFound(w, r)
		return
	}
	played := 0
	for _, c := range req.Contents {
		for _, p := range c.Parts {
			if p.FunctionCall != nil {
				played++
			}
		}
	}
	say := map[string]any{"text": "done"}
	if len(req.Tools) > 0 {
		tools := map[string]toolSpec{}
		for _, t := range req.Tools {
			for _, f := range t.FunctionDeclarations {
				tools[f.Name] = toolSpec{f.Description, geminiSchema(f.Schema)}
			}
		}
		m.keep(body, tools)
		if name, args, ok := m.next(played); ok {
			say = map[string]any{"functionCall": map[string]any{"id": turnID(played), "name": name, "args": args}}
		}
	}
	reply(w, verb == "streamGenerateContent", map[string]any{
		"candidates": []any{map[string]any{
			"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": []any{say}},
		}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2},
	})
}

// geminiSchema takes back what Gemini CLI does to a tool's schema: an argument of
// its own, and "nullable" for a type that may be null.
func geminiSchema(schema any) any {
	s, _ := schema.(map[string]any)
	properties, _ := s["properties"].(map[string]any)
	delete(properties, "wait_for_previous")
	for _, v := range properties {
		if p, _ := v.(map[string]any); p["nullable"] == true {
			delete(p, "nullable")
			p["type"] = []any{p["type"], "null"}
		}
	}
	return schema
}

// geminiReadings takes the tool results out of a conversation. A picture follows the result
// that it belongs to.
func geminiReadings(t *testing.T, body []byte) map[string]reading {
	t.Helper()
	var req geminiRequest
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("no conversation was kept: %v", err)
	}
	all := map[string]reading{}
	for _, c := range req.Contents {
		id := ""
		for _, p := range c.Parts {
			switch {
			case p.Response != nil && p.Response.Response.Error != nil:
				id = p.Response.ID
				all[id] = reading{parts: []part{{text: *p.Response.Response.Error}}, isError: true}
			case p.Response != nil && p.Response.Response.Output != nil:
				id = p.Response.ID
				all[id] = reading{parts: []part{{text: *p.Response.Response.Output}}}
			case p.Response != nil:
				t.Errorf("the model reads a response without output and error")
			case p.Data != nil:
				data, err := base64.StdEncoding.DecodeString(p.Data.Data)
				if err != nil {
					t.Error(err)
				}
				r := all[id]
				r.parts = append(r.parts, part{text: p.Data.MIME, image: data})
				all[id] = r
			}
		}
	}
	return all
}

func TestGeminiCLI(t *testing.T) {
	cli := installed(t, "node_modules/@google/gemini-cli/bundle/gemini.js")
	node := installed(t, "node")
	bin := built(t)
	m := newModel(t, script(), "mcp_sandboxmcp_", geminiModels)
	c := newClient(t, bin, m.URL)
	settings, err := json.Marshal(map[string]any{
		"mcpServers": map[string]any{"sandboxmcp": map[string]any{
			"command": bin, "args": []string{"serve"}, "env": map[string]string{"SANDBOXMCP_STATE_DIR": c.home + "/state"}, "trust": true,
		}},
		"security":  map[string]any{"auth": map[string]any{"selectedType": "gemini-api-key"}, "folderTrust": map[string]any{"enabled": false}},
		"privacy":   map[string]any{"usageStatisticsEnabled": false},
		"telemetry": map[string]any{"enabled": false},
		"general":   map[string]any{"enableAutoUpdate": false, "enableAutoUpdateNotification": false},
	})
	if err != nil {
		t.Fatal(err)
	}
	c.write(".gemini/settings.json", settings)
	out, exit := c.run([]string{"GOOGLE_GEMINI_BASE_URL=" + m.URL, "GEMINI_API_KEY=none"}, node, cli, "-p", "begin", "--model", "gemini-2.5-pro")
	if got, want := strings.TrimSpace(out), "done"; got != want || exit != 0 {
		t.Errorf("Gemini CLI said %q with exit code %d, want %q and 0", got, exit, want)
	}
	m.check(t, "gemini-cli.txt", geminiReadings(t, m.conversation()))
}
