package server

import (
	"context"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/sandboxmcp/sandboxmcp"
)

const (
	promptName = "analyze_data"
	maxPrompt  = 4000 // characters of an argument
)

// addPrompt adds the prompt of the server, if it has the tool that the prompt is about.
func (s *Server) addPrompt() {
	if s.rules().facts.all("execute_code") {
		s.prompts = true
		s.mcp.AddPrompt(&mcp.Prompt{
			Name:        promptName,
			Title:       "Analyze data",
			Description: "Analyzes data in a sandbox and answers a question with numbers and charts",
			Arguments: []*mcp.PromptArgument{
				{Name: "question", Title: "Question", Description: "What you want to know", Required: true},
				{Name: "data", Title: "Data", Description: "Where the data is: a file of the session, or a description of what you will paste"},
				{Name: "session_id", Title: "Session", Description: "The session that has the data; a new one if it is left out"},
			},
		}, s.analyzeData)
	}
}

// analyzeData returns the message of the prompt.
func (s *Server) analyzeData(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
	args := req.Params.Arguments
	for name, text := range args {
		switch {
		case name != "question" && name != "data" && name != "session_id":
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the prompt has no argument " + sandboxmcp.Quote(name)}
		case len(text) > maxPrompt:
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the argument " + name + " is too long"}
		}
	}
	question := strings.TrimSpace(args["question"])
	if question == "" {
		return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "the argument question is missing"}
	}
	session := "a session_id of your choice, the same in every call,"
	if id := args["session_id"]; id != "" {
		if _, err := sandboxmcp.ParseSessionID(id); err != nil {
			return nil, &jsonrpc.Error{Code: jsonrpc.CodeInvalidParams, Message: "session_id " + sandboxmcp.Quote(id) + " is not valid"}
		}
		session = "session_id " + id
	}
	data := "Ask me for the data if you do not have it. "
	if d := strings.TrimSpace(args["data"]); d != "" {
		data = "The data: " + d + "\n"
	}
	text := question + "\n\n" + data + s.rules().facts.text("Put small data into the code of execute_code, and files into the session with sandbox_upload_file. ") +
		"Work in the sandbox with execute_code and " + session + ` so that variables and files are kept.

1. Look at the data first: columns, types, number of rows, missing and implausible values. Say what you found.
2. Use pandas and matplotlib if they are there. ` + s.rules().facts.text("list_runtimes names the packages. ") + `Otherwise use the csv, json and statistics modules.
3. Compute every number that you state, and print it. Do not estimate.
4. Draw a chart where it helps, with title, labels and units, and save it in /mnt/data.
5. Answer the question in a few sentences. Name the numbers, the assumptions and what the data cannot show, and pass on the links of the charts.`
	return &mcp.GetPromptResult{
		Description: "Analysis of data in a sandbox",
		Messages:    []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{Text: text}}},
	}, nil
}
