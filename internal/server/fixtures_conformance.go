//go:build conformance

package server

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// The official conformance suite calls tools, prompts and resources of its own definition, which
// a product does not have. This build adds them to the server of the product, so that the suite
// tests its transports, its guard and its capabilities. No release contains them.

// Media of the suite: a picture of one pixel, and a sound without samples.
const (
	pixelPNG   = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg=="
	silenceWAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQAAAAA="
)

// pause separates notifications, as the suite asks for.
const pause = 20 * time.Millisecond

func (s *Server) addFixtures() {
	s.addFixtureTools()
	s.addInputTools()
	s.addFixturePrompts()
	s.addFixtureResources()
	s.mcp.AddReceivingMiddleware(completeFixture)
}

// completeFixture answers completion for a prompt of the suite.
func completeFixture(next mcp.MethodHandler) mcp.MethodHandler {
	return func(ctx context.Context, method string, req mcp.Request) (mcp.Result, error) {
		if p, ok := req.GetParams().(*mcp.CompleteParams); ok && p.Ref.Name == "test_prompt_with_arguments" {
			return &mcp.CompleteResult{Completion: mcp.CompletionResultDetails{Values: []string{}}}, nil
		}
		return next(ctx, method, req)
	}
}

func media(encoded string) []byte {
	data, _ := base64.StdEncoding.DecodeString(encoded)
	return data
}

func says(text string, more ...mcp.Content) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: append([]mcp.Content{&mcp.TextContent{Text: text}}, more...)}
}

func shows(content ...mcp.Content) *mcp.CallToolResult { return &mcp.CallToolResult{Content: content} }

func embedded(uri string) mcp.Content {
	return &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri, MIMEType: "text/plain", Text: "an embedded resource"}}
}

// fixture adds a tool. properties is the JSON of its arguments.
func (s *Server) fixture(name, properties string, does func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error)) {
	schema := json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)
	s.mcp.AddTool(&mcp.Tool{Name: name, Description: "Fixture of the conformance suite", InputSchema: schema}, does)
}

func (s *Server) addFixtureTools() {
	png := &mcp.ImageContent{Data: media(pixelPNG), MIMEType: "image/png"}
	failed := says("this tool fails on purpose")
	failed.IsError = true
	for name, result := range map[string]*mcp.CallToolResult{
		"test_simple_text":            says("This is a simple text response for testing."),
		"test_image_content":          shows(png),
		"test_audio_content":          shows(&mcp.AudioContent{Data: media(silenceWAV), MIMEType: "audio/wav"}),
		"test_embedded_resource":      shows(embedded("test://embedded-resource")),
		"test_multiple_content_types": says("text", png, embedded("test://mixed-content-resource")),
		"test_error_handling":         failed,
		"test_streaming_elicitation":  says("a stream has no requests of the server"),
	} {
		s.fixture(name, "", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			again := *result
			return &again, nil
		})
	}
	s.fixture("test_tool_with_progress", "", func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, done := range []float64{0, 50, 100} {
			if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{ProgressToken: req.Params.GetProgressToken(), Progress: done, Total: 100}); err != nil {
				return nil, err
			}
			time.Sleep(pause)
		}
		return says("done"), nil
	})
	logs := func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		for _, text := range []string{"Tool execution started", "Tool processing data", "Tool execution completed"} {
			if err := req.Session.Log(ctx, &mcp.LoggingMessageParams{Level: "info", Data: text}); err != nil {
				return nil, err
			}
			time.Sleep(pause)
		}
		return says("logged"), nil
	}
	s.fixture("test_tool_with_logging", "", logs)
	s.fixture("test_logging_tool", "", logs)
	s.fixture("test_missing_capability", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if caps := req.ClientCapabilities(); caps != nil && caps.Sampling != nil {
			return says("the client can sample"), nil
		}
		missing, err := json.Marshal(mcp.MissingRequiredClientCapabilityData{RequiredCapabilities: &mcp.ClientCapabilities{Sampling: &mcp.SamplingCapabilities{}}})
		if err != nil {
			return nil, err
		}
		return nil, &jsonrpc.Error{Code: mcp.CodeMissingRequiredClientCapabilities, Message: "the client cannot sample", Data: missing}
	})
	s.fixture("test_trigger_tool_change", "", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.fixture("test_added_tool", "", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) { return says("added"), nil })
		return says("added a tool"), nil
	})
	s.fixture("test_trigger_prompt_change", "", func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		s.fixturePrompt("test_added_prompt", nil, func(*mcp.GetPromptRequest) mcp.Content { return &mcp.TextContent{Text: "added"} })
		return says("added a prompt"), nil
	})
	s.addAskingTools()
}

// addAskingTools adds the tools that send requests to clients of versions with a handshake.
func (s *Server) addAskingTools() {
	s.fixture("test_sampling", `"prompt":{"type":"string"}`, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		res, err := req.Session.CreateMessage(ctx, sample(argument(req, "prompt")))
		if err != nil {
			return nil, err
		}
		text, _ := res.Content.(*mcp.TextContent)
		return says(fmt.Sprintf("LLM response: %v", text)), nil
	})
	for name, properties := range map[string]string{
		"test_elicitation": `"username":{"type":"string"},"email":{"type":"string"}`,
		"test_elicitation_sep1034_defaults": `"name":{"type":"string","default":"John Doe"},"age":{"type":"integer","default":30},
			"score":{"type":"number","default":95.5},"status":{"type":"string","enum":["active","inactive","pending"],"default":"active"},
			"verified":{"type":"boolean","default":true}`,
		"test_elicitation_sep1330_enums": `"untitledSingle":{"type":"string","enum":["option1","option2","option3"]},
			"titledSingle":{"type":"string","oneOf":[{"const":"value1","title":"First Option"},{"const":"value2","title":"Second Option"},{"const":"value3","title":"Third Option"}]},
			"legacyEnum":{"type":"string","enum":["opt1","opt2","opt3"],"enumNames":["Option One","Option Two","Option Three"]},
			"untitledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"type":"string","enum":["option1","option2","option3"]}},
			"titledMulti":{"type":"array","minItems":1,"maxItems":3,"items":{"anyOf":[{"const":"value1","title":"First Choice"},{"const":"value2","title":"Second Choice"},{"const":"value3","title":"Third Choice"}]}}`,
	} {
		s.fixture(name, `"message":{"type":"string"}`, func(ctx context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			res, err := req.Session.Elicit(ctx, elicit(argument(req, "message"), properties))
			if err != nil {
				return nil, err
			}
			return says(fmt.Sprintf("User response: action=%s, content=%v", res.Action, res.Content)), nil
		})
	}
}

// argument returns an argument of a call, or a text in its place.
func argument(req *mcp.CallToolRequest, name string) string {
	var args map[string]any
	_ = json.Unmarshal(req.Params.Arguments, &args)
	if text, ok := args[name].(string); ok {
		return text
	}
	return "Please answer"
}

func sample(prompt string) *mcp.CreateMessageParams {
	return &mcp.CreateMessageParams{Messages: []*mcp.SamplingMessage{{Role: "user", Content: &mcp.TextContent{Text: prompt}}}, MaxTokens: 100}
}

func elicit(message, properties string) *mcp.ElicitParams {
	return &mcp.ElicitParams{Message: message, RequestedSchema: json.RawMessage(`{"type":"object","properties":{` + properties + `}}`)}
}

// addInputTools adds the tools that need input of clients of versions without a handshake.
func (s *Server) addInputTools() {
	name, confirm := elicit("What is your name?", `"name":{"type":"string"}`), elicit("Please confirm", `"ok":{"type":"boolean"}`)
	color := elicit("What is your favorite color?", `"color":{"type":"string"}`)
	rounds := func(tool string, sealed bool, list ...mcp.InputRequestMap) {
		s.fixture("test_input_required_result_"+tool, "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return s.round(tool, sealed, list, req.Params)
		})
	}
	rounds("elicitation", false, mcp.InputRequestMap{"user_name": name})
	rounds("sampling", false, mcp.InputRequestMap{"capital_question": sample("What is the capital of France?")})
	rounds("list_roots", false, mcp.InputRequestMap{"client_roots": &mcp.ListRootsParams{}})
	rounds("request_state", true, mcp.InputRequestMap{"confirm": confirm})
	rounds("tampered_state", true, mcp.InputRequestMap{"confirm": confirm})
	rounds("multiple_inputs", true, mcp.InputRequestMap{"user_name": name, "greeting": sample("Generate a greeting"), "client_roots": &mcp.ListRootsParams{}})
	rounds("multi_round", true, mcp.InputRequestMap{"step1": name}, mcp.InputRequestMap{"step2": color})
	s.fixture("test_input_required_result_capabilities", "", func(_ context.Context, req *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		asks, caps := mcp.InputRequestMap{}, req.ClientCapabilities()
		if caps != nil && caps.Elicitation != nil {
			asks["user_name"] = name
		}
		if caps != nil && caps.Sampling != nil {
			asks["greeting"] = sample("Generate a greeting")
		}
		if len(asks) == 0 || len(req.Params.InputResponses) > 0 {
			return says("nothing is needed"), nil
		}
		return &mcp.CallToolResult{InputRequests: asks}, nil
	})
}

// round answers a call of a tool that asks a list of questions, one after the other. If sealed,
// the state says how many were answered, and is signed.
func (s *Server) round(tool string, sealed bool, list []mcp.InputRequestMap, p *mcp.CallToolParamsRaw) (*mcp.CallToolResult, error) {
	n := 0 // questions that were put before
	switch body, sum, found := strings.Cut(p.RequestState, "."); {
	case p.RequestState != "" && (!found || sum != s.forms.seal(body)):
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the state was changed"}
	case p.RequestState != "":
		_, _ = fmt.Sscanf(body, tool+" %d", &n)
	case !sealed && len(p.InputResponses) > 0:
		n = 1
	}
	complete := n > 0
	if complete {
		for key := range list[n-1] {
			complete = complete && p.InputResponses[key] != nil
		}
	}
	if complete && n == len(list) {
		return says("complete"), nil
	}
	if n > 0 && !complete {
		n--
	}
	res := &mcp.CallToolResult{InputRequests: list[n]}
	if sealed {
		body := fmt.Sprintf("%s %d", tool, n+1)
		res.RequestState = body + "." + s.forms.seal(body)
	}
	return res, nil
}

func (s *Server) fixturePrompt(name string, arguments []string, content func(*mcp.GetPromptRequest) mcp.Content) {
	p := &mcp.Prompt{Name: name, Description: "Fixture of the conformance suite"}
	for _, a := range arguments {
		p.Arguments = append(p.Arguments, &mcp.PromptArgument{Name: a, Description: "An argument", Required: true})
	}
	s.mcp.AddPrompt(p, func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: content(req)}}}, nil
	})
}

func (s *Server) addFixturePrompts() {
	s.prompts = true
	s.fixturePrompt("test_simple_prompt", nil, func(*mcp.GetPromptRequest) mcp.Content {
		return &mcp.TextContent{Text: "This is a simple prompt for testing."}
	})
	s.fixturePrompt("test_prompt_with_arguments", []string{"arg1", "arg2"}, func(req *mcp.GetPromptRequest) mcp.Content {
		a := req.Params.Arguments
		return &mcp.TextContent{Text: fmt.Sprintf("Prompt with arguments: arg1='%s', arg2='%s'", a["arg1"], a["arg2"])}
	})
	s.fixturePrompt("test_prompt_with_embedded_resource", []string{"resourceUri"}, func(req *mcp.GetPromptRequest) mcp.Content {
		return embedded(req.Params.Arguments["resourceUri"])
	})
	s.fixturePrompt("test_prompt_with_image", nil, func(*mcp.GetPromptRequest) mcp.Content {
		return &mcp.ImageContent{Data: media(pixelPNG), MIMEType: "image/png"}
	})
	s.mcp.AddPrompt(&mcp.Prompt{Name: "test_input_required_result_prompt", Description: "Fixture of the conformance suite"},
		func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			if len(req.Params.InputResponses) == 0 {
				return &mcp.GetPromptResult{InputRequests: mcp.InputRequestMap{"user_context": elicit("Which context?", `"context":{"type":"string"}`)}}, nil
			}
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: "with context"}}}}, nil
		})
}

func (s *Server) addFixtureResources() {
	for name, content := range map[string]mcp.ResourceContents{
		"static-text":      {MIMEType: "text/plain", Text: "This is the content of the static text resource."},
		"static-binary":    {MIMEType: "image/png", Blob: media(pixelPNG)},
		"watched-resource": {MIMEType: "text/plain", Text: "It never changes."},
	} {
		r := &mcp.Resource{Name: name, Description: "Fixture of the conformance suite", MIMEType: content.MIMEType, URI: "test://" + name}
		s.mcp.AddResource(r, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			found := content
			found.URI = req.Params.URI
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{&found}}, nil
		})
	}
	template := &mcp.ResourceTemplate{Name: "template", Description: "Fixture of the conformance suite", MIMEType: "application/json", URITemplate: "test://template/{id}/data"}
	s.mcp.AddResourceTemplate(template, func(_ context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
		id := strings.TrimSuffix(strings.TrimPrefix(req.Params.URI, "test://template/"), "/data")
		text, err := json.Marshal(map[string]any{"id": id, "templateTest": true, "data": "Data for ID: " + id})
		return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: "application/json", Text: string(text)}}}, err
	})
}
