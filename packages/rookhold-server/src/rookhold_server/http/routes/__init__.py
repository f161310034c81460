"""One module per resource; `http.app` says which path leads to which."""
