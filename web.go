package sandboxmcp

// PageAsk asks for a web page as markdown.
type PageAsk struct {
	URL       string `json:"url"`
	MaxLength int    `json:"max_length,omitempty"` // characters of content at most; 0: 8000
	Offset    int    `json:"offset,omitempty"`     // characters of content to skip
}

// Page is a web page.
type Page struct {
	URL         string `json:"url"` // after redirects
	Title       string `json:"title"`
	Status      int    `json:"status"`
	Content     string `json:"content"` // markdown; text that is no HTML stays as it is
	Truncated   bool   `json:"truncated"`
	TotalLength int    `json:"total_length"` // characters of the whole content
}

// BrowserAsk asks for a web page as a browser shows it, after its scripts have run.
type BrowserAsk struct {
	URL        string `json:"url"`
	WaitFor    string `json:"wait_for_selector,omitempty"` // CSS selector of an element that has to be visible; empty: none
	WaitUntil  string `json:"wait_until,omitempty"`        // one of BrowserWaits; empty: the first
	TimeoutMS  int    `json:"timeout_ms,omitempty"`        // 0: 30000
	Screenshot bool   `json:"screenshot,omitempty"`
}

// BrowserWaits lists what a browser can wait for, the default first.
func BrowserWaits() []string { return []string{"networkidle", "load", "domcontentloaded", "commit"} }

// MaxBrowserTimeoutMS is the largest BrowserAsk.TimeoutMS.
const MaxBrowserTimeoutMS = 120_000

// BrowserPage is a web page as a browser shows it.
type BrowserPage struct {
	URL        string `json:"url"` // after redirects, also those of scripts
	Title      string `json:"title"`
	Status     int    `json:"status"`
	Content    string `json:"content"` // markdown
	Truncated  bool   `json:"truncated"`
	Screenshot []byte `json:"screenshot_b64,omitempty"` // a PNG of the window, from an untrusted program
}

// SearchAsk asks a search engine.
type SearchAsk struct {
	Query      string `json:"query"`
	MaxResults int    `json:"max_results,omitempty"` // 0: 10
	Engine     string `json:"engine,omitempty"`      // empty: the first that answers
}

// SearchResults are the results of the engine that answered.
type SearchResults struct {
	Engine  string         `json:"engine"`
	Results []SearchResult `json:"results"`
	Tried   []TriedEngine  `json:"tried"` // in their order, the one that answered last
}

// SearchResult is one result.
type SearchResult struct {
	Title   string `json:"title"`
	URL     string `json:"url"`
	Snippet string `json:"snippet"`
}

// TriedEngine says how a search engine answered.
type TriedEngine struct {
	Engine string `json:"engine"`
	Status string `json:"status"` // ok, no results, blocked, resting, or why it failed
}
