"""The adapters of the core to AWS. A function uses AWS and the environment only through them."""
