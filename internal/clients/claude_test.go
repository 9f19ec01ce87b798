package clients_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// claudeRequest is what Claude Code asks of its model.
type claudeRequest struct {
	Model    string          `json:"model"`
	System   json.RawMessage `json:"system"`
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	Tools []struct {
		Name        string `json:"name"`
		Description string `json:"description"`
		InputSchema any    `json:"input_schema"`
	} `json:"tools"`
}

// claudeBlock is a piece of a message.
type claudeBlock struct {
	Type      string          `json:"type"`
	ID        string          `json:"id"`
	ToolUseID string          `json:"tool_use_id"`
	Text      string          `json:"text"`
	ToolName  string          `json:"tool_name"`
	IsError   bool            `json:"is_error"`
	Content   json.RawMessage `json:"content"`
	Source    struct {
		MediaType string `json:"media_type"`
		Data      string `json:"data"`
	} `json:"source"`
}

// claudeBlocks reads a content, which may be a plain string.
func claudeBlocks(raw json.RawMessage) []claudeBlock {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return []claudeBlock{{Type: "text", Text: text}}
	}
	var list []claudeBlock
	_ = json.Unmarshal(raw, &list)
	return list
}

// claudeMessages plays the messages API, always as a stream.
func claudeMessages(m *model, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var req claudeRequest
	if r.URL.Path == "/v1/messages/count_tokens" {
		reply(w, false, map[string]any{"input_tokens": 1})
		return
	}
	if err != nil || r.Method != http.MethodPost || r.URL.Path != "/v1/messages" || json.Unmarshal(body, &req) != nil {
		m.strays("%s %s", r.Method, r.URL)
		http.NotFound(w, r)
		return
	}
	played := 0
	for _, msg := range req.Messages {
		for _, b := range claudeBlocks(msg.Content) {
			if b.Type == "tool_use" {
				played++
			}
		}
	}
	block, delta, reason := map[string]any{"type": "text", "text": ""}, map[string]any{"type": "text_delta", "text": "done"}, "end_turn"
	if len(req.Tools) > 0 {
		tools := map[string]toolSpec{}
		for _, t := range req.Tools {
			tools[t.Name] = toolSpec{t.Description, t.InputSchema}
		}
		m.keep(body, tools)
		if name, args, ok := m.next(played); ok {
			text, _ := json.Marshal(args)
			block = map[string]any{"type": "tool_use", "id": turnID(played), "name": name, "input": map[string]any{}}
			delta = map[string]any{"type": "input_json_delta", "partial_json": string(text)}
			reason = "tool_use"
		}
	}
	w.Header().Set("Content-Type", "text/event-stream")
	for _, e := range []map[string]any{
		{"type": "message_start", "message": map[string]any{
			"id": "message", "type": "message", "role": "assistant", "model": req.Model, "content": []any{},
			"stop_reason": nil, "stop_sequence": nil, "usage": map[string]any{"input_tokens": 1, "output_tokens": 1},
		}},
		{"type": "content_block_start", "index": 0, "content_block": block},
		{"type": "content_block_delta", "index": 0, "delta": delta},
		{"type": "content_block_stop", "index": 0},
		{"type": "message_delta", "delta": map[string]any{"stop_reason": reason, "stop_sequence": nil}, "usage": map[string]any{"output_tokens": 1}},
		{"type": "message_stop"},
	} {
		b, _ := json.Marshal(e)
		_, _ = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", e["type"], b)
	}
}

// claudeReadings takes the tool results out of a conversation.
func claudeReadings(t *testing.T, body []byte) map[string]reading {
	t.Helper()
	var req claudeRequest
	if err := json.Unmarshal(body, &req); err != nil {
		t.Fatalf("no conversation was kept: %v", err)
	}
	all := map[string]reading{}
	for _, msg := range req.Messages {
		for _, b := range claudeBlocks(msg.Content) {
			if b.Type != "tool_result" {
				continue
			}
			r := reading{isError: b.IsError}
			for _, c := range claudeBlocks(b.Content) {
				switch c.Type {
				case "text":
					r.parts = append(r.parts, part{text: c.Text})
				case "tool_reference":
					r.parts = append(r.parts, part{text: "-- a tool, " + c.ToolName})
				case "image":
					data, err := base64.StdEncoding.DecodeString(c.Source.Data)
					if err != nil {
						t.Error(err)
					}
					r.parts = append(r.parts, part{text: c.Source.MediaType, image: data})
				default:
					t.Errorf("the model reads a block %q", c.Type)
				}
			}
			all[b.ToolUseID] = r
		}
	}
	return all
}

func TestClaudeCode(t *testing.T) {
	cli := installed(t, "node_modules/@anthropic-ai/claude-code-linux-"+arch(), "claude")
	bin := built(t)
	const prefix = "mcp__sandboxmcp__"
	turns := script()
	// Schemas come only after a search for them.
	var names []string
	for _, s := range turns {
		if !slices.Contains(names, prefix+s.tool) {
			names = append(names, prefix+s.tool)
		}
	}
	search := turn{name: "the search for tools", tool: "ToolSearch", args: map[string]any{"query": "select:" + strings.Join(names, ",")}, own: true}
	m := newModel(t, append([]turn{search}, turns...), prefix, claudeMessages)
	c := newClient(t, bin, m.URL)
	config, err := json.Marshal(map[string]any{"mcpServers": map[string]any{"sandboxmcp": map[string]any{
		"command": bin, "args": []string{"serve"}, "env": map[string]string{"SANDBOXMCP_STATE_DIR": c.home + "/state"},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	out, exit := c.run(
		[]string{
			"ANTHROPIC_BASE_URL=" + m.URL, "ANTHROPIC_API_KEY=none", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1",
			"MCP_CONNECTION_NONBLOCKING=false", "MCP_TIMEOUT=60000", // the first turn has the server, however slow the machine is
		},
		cli, "-p", "begin", "--mcp-config", c.write("mcp.json", config), "--strict-mcp-config", "--allowedTools", "mcp__sandboxmcp",
	)
	if got, want := strings.TrimSpace(out), "done"; got != want || exit != 0 {
		t.Errorf("Claude Code said %q with exit code %d, want %q and 0", got, exit, want)
	}
	m.check(t, "claude-code.txt", claudeReadings(t, m.conversation()))
}
