package api

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/sandboxmcp/sandboxmcp"
)

// VaultHandler is what a server offers of its vault. No value comes out of it.
type VaultHandler interface {
	// VaultKind is where its secrets are: "sealed", "memory" or "env".
	VaultKind() string

	// AddSecret puts a secret in, in place of one of the same key.
	AddSecret(ctx context.Context, s sandboxmcp.SecretSpec) error

	// DeleteSecret takes one out; not_found when it is not there.
	DeleteSecret(ctx context.Context, ns sandboxmcp.Namespace, key, actor string) error

	// Secrets tells which a namespace has.
	Secrets(ctx context.Context, ns sandboxmcp.Namespace) ([]sandboxmcp.SecretInfo, error)
}

// VaultList is what a server's vault has of a namespace.
type VaultList struct {
	Kind    string                  `json:"kind"`
	Secrets []sandboxmcp.SecretInfo `json:"secrets"`
}

type secretRequest struct {
	Namespace  sandboxmcp.Namespace `json:"namespace"`
	Key        string               `json:"key"`
	Value      []byte               `json:"value,omitempty"`
	TTLSeconds float64              `json:"ttl_seconds,omitempty"`
}

// maxSecret bounds the body of a request that holds a secret, in base64.
const maxSecret = 128 << 10

func (s *Server) vaultRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /v1/vault", s.listSecrets)
	mux.HandleFunc("POST /v1/vault/add", s.addSecret)
	mux.HandleFunc("POST /v1/vault/delete", s.deleteSecret)
}

func (s *Server) listSecrets(w http.ResponseWriter, r *http.Request) {
	ns, err := sandboxmcp.ParseNamespace(r.URL.Query().Get("namespace"))
	if err != nil {
		s.fail(w, err)
		return
	}
	list, err := s.handler.Secrets(r.Context(), ns)
	s.reply(w, VaultList{s.handler.VaultKind(), append([]sandboxmcp.SecretInfo{}, list...)}, err)
}

func (s *Server) addSecret(w http.ResponseWriter, r *http.Request) {
	var req secretRequest
	err := readSecret(w, r, &req)
	if err == nil {
		err = s.handler.AddSecret(r.Context(), sandboxmcp.SecretSpec{
			Namespace: req.Namespace, Key: req.Key, Value: sandboxmcp.NewSecret(string(req.Value)), TTL: time.Duration(req.TTLSeconds * float64(time.Second)), Actor: Actor,
		})
	}
	s.reply(w, map[string]any{"added": req.Key}, err)
}

func (s *Server) deleteSecret(w http.ResponseWriter, r *http.Request) {
	var req secretRequest
	err := readSecret(w, r, &req)
	if err == nil {
		err = s.handler.DeleteSecret(r.Context(), req.Namespace, req.Key, Actor)
	}
	s.reply(w, map[string]any{"deleted": req.Key}, err)
}

// readSecret reads a request; what is wrong with its body is not repeated.
func readSecret(w http.ResponseWriter, r *http.Request, into *secretRequest) error {
	if err := read(w, r, maxSecret, into); err != nil {
		return sandboxmcp.Errorf(sandboxmcp.CodeInvalidArgument, "the body is not a request of %s", r.URL.Path)
	}
	_, err := sandboxmcp.ParseNamespace(string(into.Namespace))
	return err
}

// Vault asks which secrets a namespace has in the server's vault.
func (c *Client) Vault(ctx context.Context, ns sandboxmcp.Namespace) (VaultList, error) {
	var l VaultList
	err := c.get(ctx, "/v1/vault", url.Values{"namespace": {string(ns)}}, &l)
	return l, err
}

// AddSecret puts a secret into the server's vault.
func (c *Client) AddSecret(ctx context.Context, s sandboxmcp.SecretSpec) error {
	return c.tell(ctx, "/v1/vault/add", secretRequest{s.Namespace, s.Key, []byte(s.Value.Reveal()), s.TTL.Seconds()})
}

// DeleteSecret takes a secret out of the server's vault.
func (c *Client) DeleteSecret(ctx context.Context, ns sandboxmcp.Namespace, key string) error {
	return c.tell(ctx, "/v1/vault/delete", secretRequest{Namespace: ns, Key: key})
}

// tell sends what needs no answer but that it was done.
func (c *Client) tell(ctx context.Context, path string, in secretRequest) error {
	return c.send(ctx, question{path: path, limit: maxResponse, time: callTimeout}, in, nil)
}
