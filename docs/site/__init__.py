"""The documentation as a site: `make docs`.

The Markdown files in docs/ are the source. `pages` stages them with links that work in the site,
`reference` generates the pages of the reference from the code, Zensical renders all of them, and
`links` checks the result.
"""
