"""Functions under the policies of their own roles, as the synthesised templates have them."""
